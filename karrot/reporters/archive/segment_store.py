"""Defines the interface of a store for segments, such as a folder or an S3 bucket, and the names of segments.

Each hour has a folder for its segments. The file name of a segment says which events the segment has.
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
    """The folder of an hour in UTC, such as ``day=2026-11-21/hour=14``. The names of folders sort by time."""
    return datetime.fromtimestamp(wall_ms // 1000, UTC).strftime(_HOUR)


def end_ms(hour: str) -> int:
    """The time when an hour ends, in epoch milliseconds. Raises `ValueError` if ``hour`` is no folder of an hour."""
    start_ms = int(datetime.strptime(hour, _HOUR).replace(tzinfo=UTC).timestamp()) * 1000
    if hour_at(start_ms) != hour:
        raise ValueError(hour)  # such as "day=2026-1-1/hour=1"
    return start_ms + _HOUR_MS


class SegmentName(NamedTuple):
    """The name of a segment: ``<log_id>-<first>-<last>-<lines>.jsonl.gz`` in the folder of its hour.

    ``first`` and ``last`` are sequence numbers of the log. If the log deleted events before they were archived,
    ``lines`` is less than ``last - first + 1``.
    """

    hour: str
    log_id: str
    first: int
    last: int
    lines: int

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """Parse a path that is relative to the archive. Return ``None`` if the file is not a segment."""
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
    """The number of lines in a segment, from its file name. ``None`` if the file is not a segment."""
    matched = _SEGMENT.fullmatch(file)
    return None if matched is None else int(matched[4])


class StoredSegment(NamedTuple):
    """A stored segment and its size in bytes."""

    name: SegmentName
    size: int


class StoreError(ReportFailed):
    """A call to the store failed."""


class SegmentStore(Protocol):
    """A store for segments, which never changes other files. Every method may raise `StoreError`."""

    def open(self) -> Iterator[StoredSegment]:
        """List all segments. A store with locks is first locked for this process."""

    def put(self, name: SegmentName, data: bytes) -> None:
        """Store a segment completely and durably. An existing segment stays unchanged."""

    def within(self, hour: str) -> Iterator[StoredSegment]:
        """The segments of one hour."""

    def remove(self, names: Iterable[SegmentName]) -> None:
        """Delete segments. A segment that does not exist is not an error."""

    def close(self) -> None:
        """Release the store, so that another process can use the store. Never raises an exception."""
