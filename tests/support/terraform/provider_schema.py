"""Checks Terraform files against the schema of the AWS provider, `tests/data/terraform/aws.json`."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from support.terraform.hcl_blocks import REFERENCE, Block, read_blocks

_FILE = Path(__file__).resolve().parents[2] / "data" / "terraform" / "aws.json"
_META_ATTRIBUTES = {"for_each", "count", "depends_on", "provider"}
_LITERALS = {
    r'"(?:[^"\\$]|\\.)*"': {"string"},
    r"-?[\d.]+": {"number", "string"},
    r"true|false": {"bool", "string"},
    r"\[.*": {"list"},
    r"\{.*": {"map"},
}
"""The types of attributes for which the provider accepts a literal. Other expressions can have any type."""


def schema_problems(text: str) -> list[str]:
    """What the provider would refuse in the resources and data sources of a file."""
    return list(_problems(text))


@cache
def _schema() -> Mapping[str, Any]:
    read: Mapping[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return read


def _problems(text: str) -> Iterator[str]:
    for block in read_blocks(text):
        if block.kind in {"resource", "data"}:
            kind = f"{'data.' if block.kind == 'data' else ''}{block.labels[0]}"
            if kind in _schema():
                yield from _problems_of_block(".".join([kind, *block.labels[1:]]), block, _schema()[kind])
            else:
                yield f"{kind} is not a resource of the schema"
    for kind, _, _, attribute in REFERENCE.findall(text):
        known = _schema().get(kind)
        if known is None or attribute not in {*known["attributes"], *known["blocks"], *known["computed"]}:
            yield f"{kind} has no attribute {attribute} to refer to"


def _problems_of_block(path: str, block: Block, schema: Mapping[str, Any]) -> Iterator[str]:
    blocks = [_as_written(each) for each in block.blocks if each.kind != "lifecycle"]
    for name, expression in block.attributes.items():
        if name in schema["attributes"]:
            yield from _problems_of_literal(f"{path}.{name}", expression, schema["attributes"][name])
        elif name not in _META_ATTRIBUTES:
            yield f"{path} has no attribute {name}"
    for name, body in blocks:
        if name in schema["blocks"]:
            yield from _problems_of_block(f"{path}.{name}", body, schema["blocks"][name])
        else:
            yield f"{path} has no block {name}"
    names = [name for name, _ in blocks]
    for name in schema["required"]:
        if name not in {*block.attributes, *names}:
            yield f"{path} needs {name}"
    for name, body in schema["blocks"].items():
        if names.count(name) > 1 and not body["many"]:
            yield f"{path} can have only one block {name}"


def _as_written(block: Block) -> tuple[str, Block]:
    """The name and the body of a block, also of a dynamic one."""
    if block.kind != "dynamic":
        return block.kind, block
    [content] = block.blocks
    return block.labels[0], content


def _problems_of_literal(path: str, expression: str, expected: str) -> Iterator[str]:
    for pattern, types in _LITERALS.items():
        if re.fullmatch(pattern, expression, re.DOTALL) and expected not in types:
            yield f"{path} is {expression}: it must be a {expected}"
