"""The page about the archive and the schema of its lines describe the code."""

import json
import re
from pathlib import Path

from karrot.event_json_line import EventLine, PartitionLine
from karrot.reporters.archive.segment_store import SegmentName

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "archive.md").read_text(encoding="utf-8")


def test_the_schema_describes_each_key_of_a_line_in_that_order() -> None:
    schema = json.loads((DOCS / "schemas" / "archive-line.json").read_text(encoding="utf-8"))
    partition = schema["$defs"]["PartitionLine"]
    for properties, line in ((schema["properties"], EventLine), (partition["properties"], PartitionLine)):
        assert tuple(properties) == line.__struct_fields__
        assert all(each["description"] for each in properties.values())


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
