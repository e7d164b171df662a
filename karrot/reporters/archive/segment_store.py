"""Define the place where segments are kept, and their names: the folder is the hour, the file name says which events.

A place is a folder or a bucket; `StoreError` says that it cannot be used.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, Self

_HOUR_MS = 3_600_000
_MS = 1000
_HOUR = re.compile(r"day=(\d{4}-\d\d-\d\d)/hour=([01]\d|2[0-3])", re.ASCII)
_SEGMENT = re.compile(r"([0-9A-Za-z]{1,64})-(\d{1,19})-(\d{1,19})-(\d{1,19})\.jsonl\.gz", re.ASCII)


class ArchiveHour(NamedTuple):
    """An hour of UTC, by the epoch's count of hours."""

    number: int

    @classmethod
    def at(cls, wall_ms: int) -> Self:
        """The hour that a moment lies in."""
        return cls(wall_ms // _HOUR_MS)

    @classmethod
    def parse(cls, folder: str) -> Self | None:
        """The hour that a folder is named for; ``None`` for a name that is none of ours."""
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
        """When the next hour begins."""
        return (self.number + 1) * _HOUR_MS

    @property
    def folder(self) -> str:
        """``day=2026-11-21/hour=14``: sorts by time."""
        start = datetime.fromtimestamp(self.number * _HOUR_MS / _MS, UTC)
        return f"day={start:%Y-%m-%d}/hour={start:%H}"


class SegmentName(NamedTuple):
    """``<log_id>-<first>-<last>-<lines>.jsonl.gz`` in the folder of its hour.

    ``first`` and ``last`` are sequence numbers of the log; ``lines`` are fewer than what lies between them where events
    were gone before they could be archived.
    """

    hour: ArchiveHour
    log_id: str
    first: int
    last: int
    lines: int

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """The segment that a path below the archive names; ``None`` for any other file."""
        folder, _, file = path.rpartition("/")
        hour, matched = ArchiveHour.parse(folder), _SEGMENT.fullmatch(file)
        if hour is None or matched is None:
            return None
        return cls(hour, matched[1], int(matched[2]), int(matched[3]), int(matched[4]))

    @property
    def file(self) -> str:
        """The name without its folder."""
        return f"{self.log_id}-{self.first}-{self.last}-{self.lines}.jsonl.gz"

    @property
    def path(self) -> str:
        """The name below the archive."""
        return f"{self.hour.folder}/{self.file}"


def lines_promised(file: str) -> int | None:
    """How many lines a file has that is called so, wherever it lies; ``None`` for a name that is none of ours."""
    matched = _SEGMENT.fullmatch(file)
    return None if matched is None else int(matched[4])


class StoredSegment(NamedTuple):
    """A segment that is there, and its size in bytes."""

    name: SegmentName
    size: int


class StoreError(Exception):
    """The place cannot be used now. ``reason`` is stable and labels a metric; the text is a sentence for people."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class SegmentStore(Protocol):
    """A place for segments. Files with other names are never touched. Every method may raise `StoreError`."""

    def open(self) -> Iterator[StoredSegment]:
        """Take the place for this process, where others can be kept out, and go through all that is there."""

    def put(self, name: SegmentName, data: bytes) -> None:
        """Keep a segment: whole and on disk when this returns. One that is there already is left as it is."""

    def within(self, hour: ArchiveHour) -> Iterator[StoredSegment]:
        """The segments of one hour."""

    def remove(self, names: Iterable[SegmentName]) -> None:
        """Delete segments; one that is gone already is no error."""

    def close(self) -> None:
        """Let another process have the place. Does not raise."""
