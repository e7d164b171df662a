"""Prints the schema of resources of Terraform's AWS provider, for the tests, from the npm package @cdktf/provider-aws.

Usage: terraform_schema.py UNPACKED_PACKAGE
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDERS = (
    "appautoscaling-policy",
    "appautoscaling-scheduled-action",
    "appautoscaling-target",
    "cloudwatch-metric-alarm",
    "iam-policy",
)
"""The resources that Karrot's Terraform can have, by their folder in the package."""

_INTERFACE = re.compile(r"^export interface (\w+) (?:extends [\w.]+ )?\{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_PROPERTY = re.compile(
    r"/\*\*(?P<comment>(?:(?!\*/).)*)\*/\n"
    r"    readonly \w+(?P<optional>\??): (?P<type>\{.*?\}|[^;{]+?)(?: \| [\w.]+)?;\n",
    re.DOTALL,
)
_CLASS = re.compile(
    r"^export declare class \w+ extends cdktf\.Terraform(Resource|DataSource) \{\n(.*?)^\}", re.DOTALL | re.MULTILINE
)
_TYPES = {"string": "string", "number": "number", "boolean": "bool", "string[]": "list", "number[]": "list"}


class _Property(NamedTuple):
    name: str
    kind: str
    required: bool
    is_block: bool


def main() -> None:
    """Print JSON with a line for each resource."""
    [package] = sys.argv[1:]
    texts = [(Path(package) / "lib" / folder / "index.d.ts").read_text(encoding="utf-8") for folder in FOLDERS]
    [version] = {found for text in texts for found in re.findall(r"hashicorp/aws/([\d.]+)/docs", text)}
    lines = [f"{json.dumps(address)}: {json.dumps(body)}" for address, body in map(_schema, texts)]
    print("{", f'"version": {json.dumps(version)},', ",\n".join(lines), "}", sep="\n")


def _schema(text: str) -> tuple[str, dict[str, Any]]:
    """The type of a resource, or of a data source with the prefix ``data.``, and its body."""
    interfaces = {name: list(_properties(body)) for name, body in _INTERFACE.findall(text)}
    [(kind, declared)] = _CLASS.findall(text)
    [name] = re.findall(r'tfResourceType = "(\w+)"', declared)
    [config] = re.findall(r"^export interface (\w+) extends cdktf\.TerraformMetaArguments", text, re.MULTILINE)
    body = _body(config, interfaces)
    getters = set(re.findall(r"^    get (\w+)\(\)", declared, re.MULTILINE))
    # An attribute that a configuration can set has a second getter, for its input.
    computed = {_snake(each) for each in getters if not {each, f"{each.removesuffix('Input')}Input"} <= getters}
    return ("data." if kind == "DataSource" else "") + name, {**body, "computed": sorted(computed)}


def _properties(body: str) -> Iterator[_Property]:
    for found in _PROPERTY.finditer(body):
        [name] = re.findall(r"#(\w+) \w+#\1\}", found["comment"])
        yield _Property(name, found["type"], not found["optional"], f"* {name} block" in found["comment"])


def _body(interface: str, interfaces: dict[str, list[_Property]]) -> dict[str, Any]:
    properties = interfaces[interface]
    blocks = {each.name: each for each in properties if each.kind.removesuffix("[]") in interfaces}
    return {
        # Some lists of objects can be written as an attribute or as blocks. The package does not call these "block".
        "attributes": {
            each.name: "list" if each.name in blocks else "map" if each.kind.startswith("{") else _TYPES[each.kind]
            for each in properties
            if not each.is_block
        },
        "blocks": {
            name: {**_body(each.kind.removesuffix("[]"), interfaces), "many": each.kind.endswith("[]")}
            for name, each in blocks.items()
        },
        "required": [each.name for each in properties if each.required],
    }


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


if __name__ == "__main__":
    main()
