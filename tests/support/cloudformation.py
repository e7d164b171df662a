"""Reads a CloudFormation template with the values of its parameters, as CloudFormation would deploy it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["deployed", "read_template"]

_PSEUDO = {
    "AWS::Region": "eu-west-1",
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::StackName": "karrot-prod-eu",
}
_NOTHING = object()


class _Loader(yaml.SafeLoader):
    """Reads the short form of functions, such as ``!Ref``, as the full form."""


def _function(loader: yaml.SafeLoader, tag: str, node: yaml.Node) -> Any:
    value = (
        loader.construct_scalar(node)
        if isinstance(node, yaml.ScalarNode)
        else loader.construct_sequence(node, deep=True)
        if isinstance(node, yaml.SequenceNode)
        else loader.construct_mapping(node, deep=True)  # type: ignore[arg-type]
    )
    if tag == "GetAtt":
        return {"Fn::GetAtt": str(value).split(".")}
    return {tag if tag in {"Ref", "Condition"} else f"Fn::{tag}": value}


_Loader.add_multi_constructor("!", _function)


def read_template(path: Path) -> dict[str, Any]:
    """Read a template, with each function in its full form."""
    read: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    return read


def deployed(template: Mapping[str, Any], **parameters: str) -> dict[str, Any]:
    """Return the resources and outputs for these parameters. A broken rule is a `ValueError` with its sentence.

    A reference to a resource is its logical id, and an attribute is ``ID.Attribute``.
    """
    stack = _Stack(template, parameters)
    for rule in template.get("Rules", {}).values():
        if stack.holds(rule["RuleCondition"]):
            for each in rule["Assertions"]:
                if not stack.holds(each["Assert"]):
                    raise ValueError(each["AssertDescription"])
    resources = {
        name: stack.value(each["Properties"])
        for name, each in template["Resources"].items()
        if "Condition" not in each or stack.holds({"Condition": each["Condition"]})
    }
    return {"Resources": resources, "Outputs": stack.value(template["Outputs"])}


class _Stack:
    def __init__(self, template: Mapping[str, Any], given: Mapping[str, str]) -> None:
        declared = template["Parameters"]
        assert given.keys() <= declared.keys()
        missing = {name for name, each in declared.items() if "Default" not in each} - given.keys()
        assert not missing, missing
        for name, value in given.items():
            assert re.fullmatch(declared[name].get("AllowedPattern", ".*"), value, re.DOTALL), name
            assert value in declared[name].get("AllowedValues", [value]), name
        self._values = {name: given.get(name, each.get("Default")) for name, each in declared.items()}
        self._template = template

    def holds(self, condition: Any) -> bool:
        [(function, value)] = condition.items()
        match function:
            case "Condition":
                return self.holds(self._template["Conditions"][value])
            case "Fn::Equals":
                return bool(self.value(value[0]) == self.value(value[1]))
            case "Fn::Not":
                return not self.holds(value[0])
            case "Fn::And":
                return all(map(self.holds, value))
            case "Fn::Or":
                return any(map(self.holds, value))
        raise AssertionError(function)

    def value(self, given: Any) -> Any:
        if isinstance(given, list):
            return [each for each in map(self.value, given) if each is not _NOTHING]
        if not isinstance(given, Mapping):
            return given
        if len(given) == 1:
            [(function, value)] = given.items()
            if function == "Ref" or function.startswith("Fn::"):
                return self._called(function, value)
        return {
            name: each
            for name, each in ((name, self.value(one)) for name, one in given.items())
            if each is not _NOTHING
        }

    def _called(self, function: str, value: Any) -> Any:
        match function:
            case "Ref":
                return self._named(value)
            case "Fn::If":
                return self.value(value[1] if self.holds({"Condition": value[0]}) else value[2])
            case "Fn::GetAtt":
                return ".".join(value)
            case "Fn::Join":
                return value[0].join(self.value(value[1]))
            case "Fn::Split":
                return self.value(value[1]).split(value[0])
            case "Fn::Sub":
                text, variables = (value, {}) if isinstance(value, str) else value
                known = {name: self.value(each) for name, each in variables.items()}
                return re.sub(
                    r"\$\{([\w:]+)\}",
                    lambda found: str(known[found[1]] if found[1] in known else self._named(found[1])),
                    text,
                )
        raise AssertionError(function)

    def _named(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return _NOTHING
        if name in self._template["Resources"]:
            return name
        return _PSEUDO[name] if name in _PSEUDO else self._values[name]
