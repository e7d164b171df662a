"""Add up what the archive contains: segments and bytes of each hour, and the newest event of each log."""

from collections.abc import Iterable
from typing import NamedTuple

from karrot.reporters.archive.segment_names import ArchiveHour
from karrot.reporters.archive.segment_store import StoredSegment


class Amount(NamedTuple):
    """Segments, and their bytes."""

    segments: int = 0
    size: int = 0

    def plus(self, size: int) -> "Amount":
        """One segment more."""
        return Amount(self.segments + 1, self.size + size)


class Contents:
    """Totals by hour rather than a list: a month of segments has tens of thousands."""

    def __init__(self, found: Iterable[StoredSegment]) -> None:
        self._hours: dict[ArchiveHour, Amount] = {}
        self._last: dict[str, int] = {}
        self._size = 0
        for each in found:
            self.add(each)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._size

    @property
    def segments(self) -> int:
        """How many there are."""
        return sum(amount.segments for amount in self._hours.values())

    @property
    def oldest(self) -> ArchiveHour | None:
        """The first hour that has any."""
        return min(self._hours, default=None)

    def last(self, log_id: str) -> int:
        """The number of the newest event of a log that is kept; 0 if none ever was."""
        return self._last.get(log_id, 0)

    def add(self, found: StoredSegment) -> None:
        """A segment more."""
        name = found.name
        self._hours[name.hour] = self._hours.get(name.hour, Amount()).plus(found.size)
        self._last[name.log_id] = max(self.last(name.log_id), name.last)
        self._size += found.size

    def replace(self, hour: ArchiveHour, found: Iterable[StoredSegment]) -> None:
        """These are the segments of an hour now."""
        self._size -= self._hours.pop(hour, Amount()).size
        for each in found:
            self.add(each)
