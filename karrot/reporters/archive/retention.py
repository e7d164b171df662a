"""Add up the segments and bytes of each hour, and delete the segments that are too old or too many."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from karrot.reporters.archive.segment_store import ArchiveHour, SegmentStore, StoredSegment


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


class Removed(NamedTuple):
    """What was deleted by age, and by size."""

    aged: Amount
    over: Amount


class Retention(NamedTuple):
    """The bounds: ``age_ms`` after its end an hour goes whole, ``most_bytes`` is what all segments may take."""

    age_ms: int
    most_bytes: int

    def enforce(self, store: SegmentStore, contents: Contents, now_ms: int) -> Removed:
        """Delete what is beyond the bounds. Raises `StoreError`; what was deleted before that is no longer counted."""
        aged = over = Amount()
        for hour in _hours_from_the_oldest(contents):
            if hour.end_ms > now_ms - self.age_ms:
                break
            aged = _remove(store, contents, hour, list(store.within(hour)), aged)
        for hour in _hours_from_the_oldest(contents):
            if contents.size <= self.most_bytes:
                break
            over = _remove(store, contents, hour, self._surplus(store, contents, hour), over)
        return Removed(aged, over)

    def _surplus(self, store: SegmentStore, contents: Contents, hour: ArchiveHour) -> list[StoredSegment]:
        """The oldest segments of an hour without which the rest is small enough, or all."""
        surplus: list[StoredSegment] = []
        excess = contents.size - self.most_bytes
        for each in sorted(store.within(hour), key=lambda found: found.name.first):
            if excess <= 0:
                break
            surplus.append(each)
            excess -= each.size
        return surplus


def _hours_from_the_oldest(contents: Contents) -> Iterator[ArchiveHour]:
    while (hour := contents.oldest) is not None:
        yield hour


def _remove(
    store: SegmentStore, contents: Contents, hour: ArchiveHour, found: list[StoredSegment], removed: Amount
) -> Amount:
    store.remove(each.name for each in found)
    contents.replace(hour, store.within(hour))
    for each in found:
        removed = removed.plus(each.size)
    return removed
