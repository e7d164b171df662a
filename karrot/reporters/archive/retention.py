"""Counts the segments and bytes of each hour, and deletes the segments beyond the limits of age and size."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from karrot.reporters.archive.segment_store import ArchiveHour, SegmentStore, StoredSegment


class Amount(NamedTuple):
    """A number of segments, and their size in bytes."""

    segments: int = 0
    size: int = 0

    def plus(self, size: int) -> "Amount":
        """The amount with one more segment."""
        return Amount(self.segments + 1, self.size + size)


class Contents:
    """The contents of the archive, as totals by hour, because a month can have tens of thousands of segments."""

    def __init__(self, found: Iterable[StoredSegment]) -> None:
        self._hours: dict[ArchiveHour, Amount] = {}
        self._last: dict[str, int] = {}
        self._size = 0
        for each in found:
            self.add(each)

    @property
    def size(self) -> int:
        """The size of all segments in bytes."""
        return self._size

    @property
    def segments(self) -> int:
        """The number of segments."""
        return sum(amount.segments for amount in self._hours.values())

    @property
    def oldest(self) -> ArchiveHour | None:
        """The oldest hour with segments."""
        return min(self._hours, default=None)

    def last(self, log_id: str) -> int:
        """The sequence number of a log's newest archived event. 0 if there is none."""
        return self._last.get(log_id, 0)

    def add(self, found: StoredSegment) -> None:
        """Add one segment."""
        name = found.name
        self._hours[name.hour] = self._hours.get(name.hour, Amount()).plus(found.size)
        self._last[name.log_id] = max(self.last(name.log_id), name.last)
        self._size += found.size

    def replace(self, hour: ArchiveHour, found: Iterable[StoredSegment]) -> None:
        """Replace the totals of an hour with the totals of these segments."""
        self._size -= self._hours.pop(hour, Amount()).size
        for each in found:
            self.add(each)


class Removed(NamedTuple):
    """The segments that were deleted because of their age, and those deleted because of the archive's size."""

    aged: Amount
    over: Amount


class Retention(NamedTuple):
    """The limits of the archive.

    All segments of an hour are deleted ``age_ms`` after its end. All segments together have at most ``most_bytes``.
    """

    age_ms: int
    most_bytes: int

    def enforce(self, store: SegmentStore, contents: Contents, now_ms: int) -> Removed:
        """Delete the segments beyond the limits. Raises `StoreError`, and then ``contents`` is still correct."""
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
        """The fewest oldest segments of an hour that make the archive small enough. If no number does, all segments."""
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
