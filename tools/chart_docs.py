"""Writes a chart's ``values.schema.json`` and README table: ``python tools/chart_docs.py [--check] [CHART…]``.

Both come from the chart's ``values.yaml``. There, a comment above each value describes the value::

    # -- The number of Burrow's pods.
    # @schema minimum: 0
    replicaCount: 1

- ``# --`` begins the sentence. The comment lines after ``# --`` continue the sentence.
- ``# @schema`` adds JSON Schema (draft 07) to the type of the default. Several such lines form one mapping.
- ``# @settings`` adds Karrot's settings, except secrets and settings that the chart sets from other values.

A mapping whose values have sentences is strict: the schema refuses other names. The schema also refuses ``null`` for a
section, and for a text, number or flag that is not empty. Helm would remove such a value, but the templates need it. A
mapping without sentences, or an empty mapping, is one value that accepts whatever Kubernetes accepts. Some rules, such
as refused names with their replacements and rules about two values, are not possible in ``values.yaml``. They are in
``values.schema.yaml`` in the same directory. The script merges this file over the generated schema.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from karrot.settings.options import OPTIONS, Option

CHARTS = Path(__file__).resolve().parents[1] / "helm"
BEGIN, END = "<!-- values: written by tools/chart_docs.py -->", "<!-- end of values -->"
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
# A value that Helm gives to a chart in addition to the chart's own values.
_GLOBAL = {"type": "object", "description": "What all charts of a release see."}

# The chart sets these from separate values.
_CHARTS_OWN = ("bind", "data_dir", "tls_", "watch_", "kafka_properties", "burrow_username", "event_log_password_file")

Schema = dict[str, Any]


class Value(NamedTuple):
    """One key of ``values.yaml`` with the comment above it."""

    path: tuple[str, ...]
    default: object
    sentence: str
    schema: Schema
    children: tuple["Value", ...]

    @property
    def is_section(self) -> bool:
        """Return whether the value only groups other values, which have their own sentences."""
        return any(child.sentence or child.is_section for child in self.children)

    @property
    def is_needed(self) -> bool:
        """Return whether the templates need the value. They need no mapping, list or empty text."""
        return isinstance(self.default, bool | int | float | str) and self.default != ""


class UndocumentedError(Exception):
    """A value without a sentence."""


def values(text: str) -> tuple[Value, ...]:
    """Return the values of a ``values.yaml``. Raises ``UndocumentedError``."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found = tuple(_children(root, (), text.splitlines()))
    missing = [".".join(each.path) for each in _walk(found) if not each.is_section and not each.sentence]
    if missing:
        raise UndocumentedError(f"no sentence (# --) above {', '.join(missing)}")
    return found


def _children(node: yaml.Node | None, path: tuple[str, ...], lines: list[str]) -> Iterator[Value]:
    if not isinstance(node, yaml.MappingNode) or node.flow_style:  # {a: 1} is one value: a has no comment
        return
    for key, value in node.value:
        here = (*path, key.value)
        sentence, schema = _comment(lines, key.start_mark.line)
        default = yaml.SafeLoader("").construct_document(value)
        yield Value(here, default, sentence, schema, tuple(_children(value, here, lines)))


def _comment(lines: list[str], line: int) -> tuple[str, Schema]:
    above: list[str] = []
    while line and (comment := re.fullmatch(r"\s*#(?!#) ?(.*)", lines[line - 1])):
        above.insert(0, comment[1].strip())
        line -= 1
    begins = [index for index, text in enumerate(above) if text.startswith("-- ")]
    told = above[begins[-1] :] if begins else [text for text in above if text.startswith("@")]
    schema = yaml.safe_load("{" + ", ".join(each[8:] for each in told if each.startswith("@schema ")) + "}")
    if "@settings" in told:
        schema |= _settings()
    sentence = " ".join(text for text in told if not text.startswith("@")).removeprefix("-- ")
    return sentence, schema


def _settings() -> Schema:
    own = (each for each in OPTIONS if not each.is_secret and not each.key.startswith(_CHARTS_OWN))
    return {"additionalProperties": False, "properties": {each.key: _setting(each) for each in own}}


def _setting(option: Option) -> Schema:
    return {
        "description": f"{option.sentence} Allowed: {option.kind.allowed}. Default: {option.default or 'none'}.",
        "type": ["string", "number", "boolean", "array"],
        "items": {"type": "string"},
    }


def _walk(found: tuple[Value, ...]) -> Iterator[Value]:
    """Yield the sections and the described values, but no values inside a described value."""
    for each in found:
        yield each
        if each.is_section:
            yield from _walk(each.children)


def schema(found: tuple[Value, ...], extra: Schema) -> Schema:
    """Return the JSON Schema of a chart's values."""
    root = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_strict(found),
    }
    root["properties"]["global"] = _GLOBAL
    return _merged(root, extra)


def _strict(found: tuple[Value, ...]) -> Schema:
    required = [each.path[-1] for each in found if each.is_section or each.is_needed]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {each.path[-1]: _property(each) for each in found},
    } | ({"required": required} if required else {})


def _property(value: Value) -> Schema:
    shown = _strict(value.children) if value.is_section else {"type": _TYPES.get(type(value.default), "null")}
    asked = _merged(shown, value.schema)
    return {"description": value.sentence, **asked} if value.sentence else asked


def _merged(below: Schema, above: Schema) -> Schema:
    both = dict(below)
    for name, value in above.items():
        deep = isinstance(value, dict) and isinstance(both.get(name), dict)
        both[name] = _merged(both[name], value) if deep else value
    return both


def table(found: tuple[Value, ...]) -> str:
    """Return a Markdown table of the values, with their defaults and sentences."""
    rows = [
        f"| `{'.'.join(each.path)}` | {_default(each.default)} | {_cell(each.sentence)} |"
        for each in _walk(found)
        if not each.is_section
    ]
    return "\n".join(["| value | default | what it does |", "| --- | --- | --- |", *rows])


def _default(default: object) -> str:
    text = json.dumps(default, ensure_ascii=False)
    return f"`{_cell(text)}`" if default not in ("", None) else "none"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def documents(chart: Path) -> dict[Path, str]:
    """Return the generated text of each file of a chart."""
    found = values((chart / "values.yaml").read_text(encoding="utf-8"))
    overlay, readme = chart / "values.schema.yaml", chart / "README.md"
    extra = yaml.safe_load(overlay.read_text(encoding="utf-8")) if overlay.exists() else {}
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        chart / "values.schema.json": json.dumps(schema(found, extra), indent=2, ensure_ascii=False) + "\n",
        readme: f"{before}{BEGIN}\n{table(found)}\n{END}{after}",
    }


def stale(charts: Iterable[Path]) -> dict[Path, str]:
    """Return the files of these charts that differ from the generated texts."""
    wanted = {path: text for each in charts for path, text in documents(each).items()}
    return {path: text for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text}


def main(arguments: list[str]) -> int:
    """Write the stale files, or print their names with ``--check``. Return the exit code."""
    names = [each for each in arguments if each != "--check"]
    charts = [CHARTS / name for name in names] or sorted(each.parent for each in CHARTS.glob("*/Chart.yaml"))
    try:
        changed = stale(charts)
    except UndocumentedError as missing:
        print(missing, file=sys.stderr)
        return 1
    for path, text in changed.items():
        print(path.relative_to(CHARTS.parent))
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    return 1 if changed and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
