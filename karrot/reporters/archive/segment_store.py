"""Defines the interface of a store for segments, such as a folder or an S3 bucket, and the names of segments.

A segment's folder is the hour of the segment. Its file name says which events the segment has.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, Self

from karrot.reporters.base import ReportFailed

_HOUR_MS = 3_600_000
_HOUR = "day=%Y-%m-%d/hour=%H"
_SEGMENT = re.compile(r"([0-9A-Za-z]{1,64})-(\d{1,19})-(\d{1,19})-(\d{1,19})\.jsonl\.gz", re.ASCII)


def hour_at(wall_ms: int) -> str:
    """The folder of an hour in UTC, such as ``day=2026-11-21/hour=14``. Folders sort by time."""
    return datetime.fromtimestamp(wall_ms // 1000, UTC).strftime(_HOUR)


def end_ms(hour: str) -> int:
    """The time when an hour ends. Raises `ValueError` if no hour has this folder."""
    start_ms = int(datetime.strptime(hour, _HOUR).replace(tzinfo=UTC).timestamp()) * 1000
    if hour_at(start_ms) != hour:
        raise ValueError(hour)  # such as "day=2026-1-1/hour=1"
    return start_ms + _HOUR_MS


class SegmentName(NamedTuple):
    """The name of a segment: ``<log_id>-<first>-<last>-<lines>.jsonl.gz`` in the folder of its hour.

    ``first`` and ``last`` are sequence numbers of the log. ``lines`` is less than ``last - first + 1`` if the log
    deleted events before they were archived.
    """

    hour: str
    log_id: str
    first: int
    last: int
    lines: int

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """The segment with this path below the archive. ``None`` if the file is not a segment."""
        hour, _, file = path.rpartition("/")
        matched = _SEGMENT.fullmatch(file)
        try:
            end_ms(hour)
        except ValueError:
            return None
        return matched and cls(hour, matched[1], *map(int, matched.groups()[1:]))

    @property
    def file(self) -> str:
        return f"{self.log_id}-{self.first}-{self.last}-{self.lines}.jsonl.gz"

    @property
    def path(self) -> str:
        return f"{self.hour}/{self.file}"


def lines_promised(file: str) -> int | None:
    """The number of lines in a segment's file, according to its name. ``None`` if the name is not that of a segment."""
    matched = _SEGMENT.fullmatch(file)
    return None if matched is None else int(matched[4])


class StoredSegment(NamedTuple):
    """A stored segment and its size in bytes."""

    name: SegmentName
    size: int


class StoreError(ReportFailed):
    """The store cannot be used now."""


class SegmentStore(Protocol):
    """A store for segments. It never changes files with other names. Every method may raise `StoreError`."""

    def open(self) -> Iterator[StoredSegment]:
        """List all segments. If the store has locks, first lock it for this process."""

    def put(self, name: SegmentName, data: bytes) -> None:
        """Store a segment. When this returns, it is complete and on disk. An existing segment stays unchanged."""

    def within(self, hour: str) -> Iterator[StoredSegment]:
        """The segments of one hour."""

    def remove(self, names: Iterable[SegmentName]) -> None:
        """Delete segments. It is not an error if a segment does not exist."""

    def close(self) -> None:
        """Release the store, so that another process can use it. Does not raise."""
