"""The page about the archive describes the code."""

import json
import re
from pathlib import Path
from typing import Any

from karrot.event_json_line import EventLine, PartitionLine
from karrot.reporters.archive.segment_store import SegmentName

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "archive.md").read_text(encoding="utf-8")


def keys(heading: str) -> tuple[str, ...]:
    """Return the first column of the table with this heading."""
    table = PAGE.partition(f"| {heading} | type |")[2].partition("\n\n")[0]
    return tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def test_a_line_has_the_keys_of_the_page_in_that_order() -> None:
    assert keys("key") == EventLine.__struct_fields__
    assert keys("of a partition") == PartitionLine.__struct_fields__


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """Return the type and the description of each key in the table with this heading, without links."""
    table = PAGE.partition(f"| {heading} | type |")[2].partition("\n\n")[0]
    return {
        key: (kind, re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))
        for key, kind, text in re.findall(r"^\| `(\w+)` \| ([^|]+) \| (.+) \|$", table, re.MULTILINE)
    }


def type_of(schema: dict[str, Any]) -> str:
    """Name the type of a key as the page does."""
    if "anyOf" in schema:
        return " or ".join(map(type_of, schema["anyOf"]))
    if "items" in schema:
        return f"list of {type_of(schema['items'])}s"
    if schema.get("enum") == [1]:
        return "1"
    names = {"string": "text", "#/$defs/PartitionLine": "partition"}
    named = schema.get("$ref") or schema.get("type", "text")
    return names.get(named, "text" if "$ref" in schema else named)


def test_the_schema_has_the_types_and_descriptions_of_the_page() -> None:
    schema = json.loads((DOCS / "schemas" / "archive-line.json").read_text(encoding="utf-8"))
    for heading, properties in (
        ("key", schema["properties"]),
        ("of a partition", schema["$defs"]["PartitionLine"]["properties"]),
    ):
        assert rows(heading) == {key: (type_of(each), each["description"]) for key, each in properties.items()}


def test_the_name_on_the_page_is_a_valid_segment_name() -> None:
    (path,) = re.findall(r"^archive/(day=\S+)$", PAGE, re.MULTILINE)
    name = SegmentName.parse(path)
    assert name is not None
    assert (name.first, name.last, name.lines) == (81, 580, 500)


def test_every_reason_is_explained() -> None:
    package = Path(__file__).resolve().parents[3] / "karrot" / "reporters" / "archive"
    code = "".join((package / name).read_text(encoding="utf-8") for name in ("local_folder.py", "s3.py"))
    words = {"full", "permission", "locked", "no_bucket", "credentials", "throttled", "unavailable"}
    assert all(f'"{word}"' in code and f"| `{word}` |" in PAGE for word in words)
