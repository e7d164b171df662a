"""The page about the archive describes the code."""

import re
from pathlib import Path

from karrot.event_json_line import EventLine, PartitionLine
from karrot.reporters.archive.segment_store import SegmentName

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "archive.md").read_text(encoding="utf-8")


def keys(heading: str) -> tuple[str, ...]:
    """Return the first column of the table with this heading."""
    table = PAGE.partition(f"| {heading} | type |")[2].partition("\n\n")[0]
    return tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def test_a_line_has_the_keys_of_the_page_in_that_order() -> None:
    assert keys("key") == EventLine.__struct_fields__
    assert keys("of a partition") == PartitionLine.__struct_fields__


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
