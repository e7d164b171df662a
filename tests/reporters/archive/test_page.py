"""The page about the archive describes the code."""

import json
import re
from pathlib import Path

from karrot.event_json_line import EventLine, PartitionLine
from karrot.reporters.archive.segment_store import SegmentName

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "archive.md").read_text(encoding="utf-8")


def described(heading: str) -> dict[str, str]:
    """Return the description of each key in the list with this heading, without links."""
    listed = PAGE.partition(f"\n{heading}:\n\n")[2].partition("\n\n")[0]
    return {
        key: re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
        for key, text in re.findall(r"^- `(\w+)`: (.+)$", listed, re.MULTILINE)
    }


def test_a_line_has_the_keys_of_the_page_in_that_order() -> None:
    assert tuple(described("Keys of a line")) == EventLine.__struct_fields__
    assert tuple(described("Keys of a partition")) == PartitionLine.__struct_fields__


def test_the_schema_has_the_descriptions_of_the_page() -> None:
    schema = json.loads((DOCS / "schemas" / "archive-line.json").read_text(encoding="utf-8"))
    for heading, properties in (
        ("Keys of a line", schema["properties"]),
        ("Keys of a partition", schema["$defs"]["PartitionLine"]["properties"]),
    ):
        assert described(heading) == {key: each["description"] for key, each in properties.items()}


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
