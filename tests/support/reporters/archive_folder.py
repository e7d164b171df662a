"""Reads the segments in an archive folder, and makes the feed that fills it."""

import gzip
from pathlib import Path
from random import Random

from karrot.delivery import Feed
from karrot.event_json_line import EventLine, decode
from karrot.eventlog.event_log import EventLog
from karrot.reporters.archive import build
from karrot.reporters.archive.segment_store import SegmentName
from support.manual_clock import ManualClock
from support.reporters.reporter_context import make_context


def archive_feed(log: EventLog, clock: ManualClock, place: Path | str, **settings: str) -> Feed:
    """Make a feed with its own reporter, like that of every process, and its cursor in the log."""
    context = make_context("archive", {"dir": str(place), **settings}, log=log, clock=clock)
    feed = Feed("archive", log, clock, Random(1), lambda: build(context))
    feed.reporter = feed.build()
    feed.planned_ms = clock.boot_ms()
    return feed


def segment_names(archive: Path) -> list[SegmentName]:
    """Return the segments of a folder, by log and number; other files are ignored."""
    paths = (path.relative_to(archive).as_posix() for path in archive.rglob("*"))
    found = [name for name in map(SegmentName.parse, paths) if name is not None]
    return sorted(found, key=lambda name: (name.log_id, name.first))


def segment_lines(segment: bytes) -> list[EventLine]:
    """Return the lines of a segment, which must be complete."""
    *lines, rest = gzip.decompress(segment).split(b"\n")
    assert rest == b""
    return [decode(line) for line in lines]


def read_archive(archive: Path) -> list[EventLine]:
    """Return every line of a folder, segment by segment; each segment must match its name."""
    found: list[EventLine] = []
    for name in segment_names(archive):
        lines = segment_lines((archive / name.path).read_bytes())
        assert {line.log_id for line in lines} == {name.log_id}
        assert (lines[0].seq, lines[-1].seq, len(lines)) == (name.first, name.last, name.lines)
        found += lines
    return found
