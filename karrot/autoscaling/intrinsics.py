"""CloudFormation's functions in their long form, as far as a scaling template needs them.

A reference to a resource becomes its logical id, which is how alarms and policies find each other here.
"""

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["TemplateError", "resolved"]


class TemplateError(ValueError):
    """The template is not one that this model can run; the text says where and why."""


def resolved(node: Any, parameters: Mapping[str, Any]) -> Any:
    """The node with Ref, Fn::GetAtt, Fn::Sub and Fn::Join carried out. Raises `TemplateError` for other functions."""
    if isinstance(node, list):
        return [resolved(each, parameters) for each in node]
    if not isinstance(node, Mapping):
        return node
    if len(node) == 1:
        ((key, argument),) = node.items()
        if key == "Ref" or str(key).startswith("Fn::"):
            return _call(key, argument, parameters)
    return {key: resolved(value, parameters) for key, value in node.items()}


def _call(function: str, argument: Any, parameters: Mapping[str, Any]) -> Any:
    match function, argument:
        case "Ref", str():
            return parameters.get(argument, argument)
        case "Fn::GetAtt", [str(name), *_]:
            return name
        case "Fn::GetAtt", str():
            return argument.partition(".")[0]
        case "Fn::Sub", str():
            return _substituted(argument, parameters)
        case "Fn::Sub", [str(text), {**more}]:
            return _substituted(text, {**parameters, **resolved(more, parameters)})
        case "Fn::Join", [str(between), list(parts)]:
            return between.join(str(resolved(part, parameters)) for part in parts)
        case _:
            raise TemplateError(f"{function} is not modelled")


def _substituted(text: str, parameters: Mapping[str, Any]) -> str:
    return re.sub(r"\$\{([^!}][^}]*)\}", lambda found: str(parameters.get(found[1], found[1])), text)
