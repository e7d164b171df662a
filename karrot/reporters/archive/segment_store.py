"""Defines the interface of a store for segments, such as a folder or an S3 bucket, and the names of segments.

A segment's folder is the hour of the segment. Its file name says which events the segment has.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, Self

from karrot.reporters.base import ReportFailed

_HOUR_MS = 3_600_000
_MS = 1000
_HOUR = re.compile(r"day=(\d{4}-\d\d-\d\d)/hour=([01]\d|2[0-3])", re.ASCII)
_SEGMENT = re.compile(r"([0-9A-Za-z]{1,64})-(\d{1,19})-(\d{1,19})-(\d{1,19})\.jsonl\.gz", re.ASCII)


class ArchiveHour(NamedTuple):
    """An hour in UTC, as the number of hours since 1970."""

    number: int

    @classmethod
    def at(cls, wall_ms: int) -> Self:
        return cls(wall_ms // _HOUR_MS)

    @classmethod
    def parse(cls, folder: str) -> Self | None:
        """The hour that a folder's name means. ``None`` if Karrot does not use such a name."""
        matched = _HOUR.fullmatch(folder)
        if matched is None:
            return None
        try:
            start = datetime.strptime(f"{matched[1]} {matched[2]}", "%Y-%m-%d %H").replace(tzinfo=UTC)
        except ValueError:
            return None
        return cls(int(start.timestamp()) * _MS // _HOUR_MS)

    @property
    def end_ms(self) -> int:
        return (self.number + 1) * _HOUR_MS

    @property
    def folder(self) -> str:
        """The folder's name, such as ``day=2026-11-21/hour=14``. Names sort by time."""
        start = datetime.fromtimestamp(self.number * _HOUR_MS / _MS, UTC)
        return f"day={start:%Y-%m-%d}/hour={start:%H}"


class SegmentName(NamedTuple):
    """The name of a segment: ``<log_id>-<first>-<last>-<lines>.jsonl.gz`` in the folder of its hour.

    ``first`` and ``last`` are sequence numbers of the log. ``lines`` is less than ``last - first + 1`` if the log
    deleted events before they were archived.
    """

    hour: ArchiveHour
    log_id: str
    first: int
    last: int
    lines: int

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """The segment with this path below the archive. ``None`` if the file is not a segment."""
        folder, _, file = path.rpartition("/")
        hour, matched = ArchiveHour.parse(folder), _SEGMENT.fullmatch(file)
        if hour is None or matched is None:
            return None
        return cls(hour, matched[1], int(matched[2]), int(matched[3]), int(matched[4]))

    @property
    def file(self) -> str:
        return f"{self.log_id}-{self.first}-{self.last}-{self.lines}.jsonl.gz"

    @property
    def path(self) -> str:
        return f"{self.hour.folder}/{self.file}"


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

    def within(self, hour: ArchiveHour) -> Iterator[StoredSegment]:
        """The segments of one hour."""

    def remove(self, names: Iterable[SegmentName]) -> None:
        """Delete segments. It is not an error if a segment does not exist."""

    def close(self) -> None:
        """Release the store, so that another process can use it. Does not raise."""
