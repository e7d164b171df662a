"""Delete old segments: those of hours beyond the age, then the oldest until the rest is small enough."""

from collections.abc import Iterator
from typing import NamedTuple

from karrot.reporters.archive.contents import Amount, Contents
from karrot.reporters.archive.segment_names import ArchiveHour
from karrot.reporters.archive.segment_store import SegmentStore, StoredSegment


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
