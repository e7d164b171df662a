"""Plans a Terraform module with Terraform itself, but without a provider: each resource becomes a ``terraform_data``.

Terraform evaluates every expression, loop and validation. It does not check the provider's schema in such a plan;
`provider_schema` does.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.terraform.hcl_blocks import REFERENCE, Block, read_blocks

_PLANNED_REFERENCE = re.compile(r"<((?:data\.)?aws_.*)>")
_REPEATING = ("for_each", "count")


class PlanError(Exception):
    """Terraform refuses to plan. The arguments are its messages."""


class Planned(NamedTuple):
    """The attributes of the planned resources by address, and the outputs.

    Attributes without a value are left out. A reference to an attribute of a resource is ``{"Ref": its address}``.
    """

    resources: dict[str, dict[str, Any]]
    outputs: dict[str, Any]


def terraform(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Terraform in a folder. Without Terraform the test is skipped."""
    binary = shutil.which("terraform") or pytest.skip("needs terraform on the PATH")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "CHECKPOINT_DISABLE": "1"}
    return subprocess.run(
        [binary, f"-chdir={folder}", *arguments], env=environment, capture_output=True, text=True, check=False
    )


def copy_without_provider(source: Path, target: Path) -> None:
    """Copy the files of a module so that `plan` needs no provider."""
    target.mkdir(parents=True)
    for path in source.glob("*.tf"):
        made = "\n".join(map(_without_provider, read_blocks(path.read_text(encoding="utf-8"))))
        # A plan does not know the attributes of resources that do not exist yet, so each reference becomes a text.
        (target / path.name).write_text(REFERENCE.sub(_as_text, made), encoding="utf-8")


def plan(folder: Path, variables: Mapping[str, Any]) -> Planned:
    """Plan a copied module. Raises `PlanError`."""
    (folder / "terraform.tfvars.json").write_text(json.dumps(variables), encoding="utf-8")
    ended = terraform("plan", "-json", "-out=planned", folder=folder)
    if ended.returncode:
        lines = map(json.loads, ended.stdout.splitlines())
        raise PlanError(*(line["diagnostic"]["detail"] for line in lines if line["@level"] == "error"))
    shown = terraform("show", "-json", "planned", folder=folder)
    assert shown.returncode == 0, shown.stderr
    values = json.loads(shown.stdout)["planned_values"]
    resources = dict(_resources(values["root_module"]))
    for address in _references(list(resources.values())):
        assert address.rpartition(".")[0] in resources, f"{address} does not exist"
    return Planned(resources, {name: _plain(each["value"]) for name, each in values.get("outputs", {}).items()})


def _without_provider(block: Block) -> str:
    if block.kind in {"terraform", "provider"}:
        return ""
    if block.kind not in {"resource", "data"}:
        return block.text
    name = ".".join([*(["data"] if block.kind == "data" else []), *block.labels]).replace(".", "-")
    repeating = [f"{each} = {block.attributes[each]}" for each in _REPEATING if each in block.attributes]
    conditions = [each.text for each in block.blocks if each.kind == "lifecycle"]
    made = f"input = {_as_object(block)}"
    return "\n".join([f'resource "terraform_data" "{name}" {{', *repeating, made, *conditions, "}"])


def _as_object(block: Block) -> str:
    """The body of a block as an object, in which each block is an element of a list."""
    lines = [f"{name} = {value}" for name, value in block.attributes.items() if name not in _REPEATING]
    for name, blocks in groupby((each for each in block.blocks if each.kind != "lifecycle"), _name):
        lines.append(f"{name} = concat({', '.join(map(_as_list, blocks))})")
    return "\n".join(["{", *lines, "}"])


def _name(block: Block) -> str:
    return block.labels[0] if block.kind == "dynamic" else block.kind


def _as_list(block: Block) -> str:
    if block.kind != "dynamic":
        return f"[{_as_object(block)}]"
    [content] = block.blocks
    pairs = f"[for key, value in {block.attributes['for_each']} : {{ key = key, value = value }}]"
    return f"[for {_name(block)} in {pairs} : {_as_object(content)}]"


def _as_text(found: re.Match[str]) -> str:
    kind, name, key, attribute = found.groups()
    instance = "" if key is None else f'[\\"${{{key}}}\\"]' if key.startswith("each.") else f"[{key}]"
    return f'"<{kind}.{name}{instance}.{attribute}>"'


def _resources(module: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for resource in module.get("resources", ()):
        index = f"[{json.dumps(resource['index'])}]" if "index" in resource else ""
        yield resource["name"].replace("-", ".") + index, _plain(resource["values"]["input"])
    for child in module.get("child_modules", ()):
        yield from _resources(child)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items() if each not in (None, [])}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    found = _PLANNED_REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return {"Ref": found[1]} if found else value


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value.keys() == {"Ref"}:
        yield value["Ref"]
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _references(each)
