"""Keeps a partition's log end offsets over time, and computes the age of the oldest unread message. No I/O.

Several sources give samples of the same log end: every consumer group that reads the topic, Burrow's REST API, and
`watch`. Burrow's log ends are up to one ``offset-refresh`` old, so a newer sample may show an older log end.
"""

import struct
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Final, NamedTuple

from karrot.event import AgeKind, LagAge, LagEvent, LogEnd, PartitionLag, Source, Status, TopicPartition
from karrot.signals import log_ends_of

REFRESH_MS: Final = 10_000
"""Burrow's default ``offset-refresh``: how old a log end of Burrow can be."""

MOST_PARTITIONS: Final = 1000
"""At most this many partitions of an event, those with the largest lags, get an age. More would delay other events."""

_BEHIND_MS: Final = 60_000
"""A slow source's log end may be this old. A log end below all log ends of the last minute contradicts the history."""

_OFFSET: Final = itemgetter(1)
_SPACING_MS: Final = REFRESH_MS // 2
_TOLERATED_SHARE: Final = 0.01
_THIN_ABOVE: Final = 96
_THIN_AT_ONCE: Final = 16
_GOLDEN_RATIO: Final = 0.618033988749895
_MOST_SAMPLES: Final = 640
_MOST_OFFSET: Final = 2**63 - 1
_NONE_BETWEEN: Final = -1
_CHECKSUM: Final = struct.Struct("=I")
_NUMBER: Final = "q"
_NUMBER_BYTES: Final = 8


class Age(NamedTuple):
    """The age of a message in seconds, and how precisely the age is known."""

    seconds: float
    kind: AgeKind


_NO_AGE: Final = Age(0.0, AgeKind.EXACT)


class LogEndHistory:
    """Samples of a partition's log end, oldest first. Neither their times nor their offsets decrease.

    A straight line between two samples replaces those between them if its error in time is at most one refresh, or 1 %
    of their age if that is more. For each pair of neighbours, ``_errors`` limits this error in milliseconds; -1 if no
    sample was left out between them.
    """

    __slots__ = ("_errors", "_offsets", "_times")

    def __init__(self, numbers: "array[int] | None" = None) -> None:
        numbers = array(_NUMBER) if numbers is None else numbers
        count = len(numbers) // 3
        self._times, self._offsets, self._errors = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]

    @classmethod
    def unpack(cls, data: bytes) -> "LogEndHistory | None":
        """Unpack a history that `pack` packed. ``None`` if the bytes are damaged, or from a machine of another kind."""
        packed = memoryview(data)[_CHECKSUM.size :]
        is_whole = len(data) >= _CHECKSUM.size and not len(packed) % (3 * _NUMBER_BYTES)
        if not is_whole or zlib.crc32(packed) != _CHECKSUM.unpack_from(data)[0]:
            return None
        numbers = array(_NUMBER)
        numbers.frombytes(packed)
        return cls(numbers)

    def pack(self) -> bytes:
        """Pack the history: a checksum, then times, offsets and errors of 8 bytes each, in the machine's byte order."""
        packed = (self._times + self._offsets + self._errors).tobytes()
        return _CHECKSUM.pack(zlib.crc32(packed)) + packed

    @property
    def samples(self) -> list[LogEnd]:
        """The samples, oldest first."""
        return [LogEnd(*each) for each in zip(self._times, self._offsets, strict=True)]

    def covers(self, offset: int) -> bool:
        """Whether a sample shows that the log grew beyond the offset."""
        return bool(self._offsets) and offset < self._offsets[-1]

    def agrees_with(self, sample: LogEnd) -> bool:
        """Whether a log end is not below the newest sample."""
        return not self._offsets or sample.offset >= self._offsets[-1]

    def record(self, samples: Sequence[LogEnd]) -> bool:
        """Add the samples of one verdict, oldest first. Returns whether the newest sample contradicts the history.

        If so, the topic was created again, and the history restarts with these samples. Samples that contradict each
        other, and offsets beyond 2^63, are left out. A log end below a newer log end of the last minute is also left
        out.
        """
        own = [each for each in samples if each.offset <= _MOST_OFFSET]
        if not own:
            return False
        if own != sorted(own) or own != sorted(own, key=_OFFSET):
            own = own[-1:]
        contradicted = self._is_contradicted_by(own[-1])
        if contradicted:
            del self._times[:], self._offsets[:], self._errors[:]
        for at_ms, offset in own:
            self._add(at_ms, offset)
        if len(self._times) > _THIN_ABOVE:
            self._thin(own[-1].at_ms)
        return contradicted

    def forget_before(self, at_ms: int) -> None:
        """Remove the samples before a time, except the last of these samples, because a line may start there."""
        first = max(0, bisect_right(self._times, at_ms) - 1)
        del self._times[:first], self._offsets[:first], self._errors[:first]

    def age_at(self, offset: int, now_ms: int, *, refresh_ms: int) -> Age | None:
        """How long ago the log ended at an offset: the age of the message there. ``None`` without a sample.

        ``refresh_ms`` is the maximum age of the source's log ends, 0 for exact ones. Their average age is half of that,
        unless less than one message per refresh arrives. A sample at this offset is exact: the group had committed
        everything.

        - Between two samples, the log is assumed to grow evenly. If the log end stayed at the offset for longer than a
          refresh, the end of that time counts, because no unread message existed before it.
        - Below the oldest sample, their rate extrapolates the time, by at most as many messages as the samples cover.
          Further below, the age of the oldest sample is a lower bound.
        """
        times, offsets = self._times, self._offsets
        if not times:
            return None
        below = bisect_right(offsets, offset) - 1
        if below < 0:
            missing = offsets[0] - offset
            above = bisect_left(offsets, offsets[0] + missing)
            if above == len(offsets):
                return Age(max(0, now_ms - times[0]) / 1000, AgeKind.AT_LEAST)
            per_message = (times[above] - times[0]) / (offsets[above] - offsets[0])
            ended_ms, kind = times[0] - missing * per_message, AgeKind.EXTRAPOLATED
        elif below == len(offsets) - 1:
            ended_ms, per_message, kind = times[-1], 0.0, AgeKind.EXACT
        else:
            since = times[below]
            if below and offsets[below - 1] == offsets[below] and since - times[below - 1] <= refresh_ms:
                since = times[below - 1]
            per_message = (times[below + 1] - since) / (offsets[below + 1] - offsets[below])
            ended_ms, kind = since + (offset - offsets[below]) * per_message, AgeKind.EXACT
        is_sample = below >= 0 and offsets[below] == offset
        delay_ms = 0.0 if is_sample else max(0.0, (refresh_ms - per_message) / 2)
        return Age(max(0.0, now_ms - ended_ms + delay_ms) / 1000, kind)

    def _is_contradicted_by(self, newest: LogEnd) -> bool:
        if not self._times or newest.at_ms < self._times[-1] or newest.offset >= self._offsets[-1]:
            return False
        minute_ago = bisect_right(self._times, newest.at_ms - _BEHIND_MS) - 1
        return newest.offset < self._offsets[max(0, minute_ago)]

    def _add(self, at_ms: int, offset: int) -> None:
        times, offsets, errors = self._times, self._offsets, self._errors
        at = bisect_right(times, at_ms)
        if at == len(times):
            if offsets and offset < offsets[-1]:
                return
            times.append(at_ms)
            offsets.append(offset)
            errors.append(_NONE_BETWEEN)
            if at > 1 and (offsets[-3] == offset or times[-2] - times[-3] < _SPACING_MS):
                self._leave_out(at - 1)
            return
        if (
            times[at] - at_ms >= _SPACING_MS
            and (not at or at_ms - times[at - 1] >= _SPACING_MS)
            and self._fits(at, at_ms, offset)
        ):
            times.insert(at, at_ms)
            offsets.insert(at, offset)
            errors.insert(at, errors[at - 1] if at else _NONE_BETWEEN)

    def _fits(self, at: int, at_ms: int, offset: int) -> bool:
        """Whether a sample agrees with its neighbours, and with the samples between them that were left out."""
        if at == 0:
            return offset <= self._offsets[0]
        if not self._offsets[at - 1] <= offset <= self._offsets[at]:
            return False
        error = self._errors[at - 1]
        return error == _NONE_BETWEEN or self._apart(at - 1, at, at_ms, offset) <= error + REFRESH_MS

    def _thin(self, now_ms: int) -> None:
        """Leave out the unneeded ones of 16 samples, and the oldest sample if too many are left.

        Checking hundreds of samples would cost more than the rest of the event. Multiples of the golden ratio reach all
        positions equally often, at any rate of events.
        """
        at = 1 + int(now_ms * _GOLDEN_RATIO % 1.0 * (len(self._times) - 2))
        for _ in range(_THIN_AT_ONCE):
            if at >= len(self._times) - 1:
                break
            tolerated = max(REFRESH_MS, _TOLERATED_SHARE * (now_ms - self._times[at + 1]))
            if self._error_without(at) <= tolerated:
                self._leave_out(at)
            else:
                at += 1
        surplus = len(self._times) - _MOST_SAMPLES
        if surplus > 0:
            del self._times[:surplus], self._offsets[:surplus], self._errors[:surplus]

    def _leave_out(self, at: int) -> None:
        self._errors[at - 1] = self._error_without(at)
        del self._times[at], self._offsets[at], self._errors[at]

    def _error_without(self, at: int) -> int:
        """The largest time error of a straight line that skips the sample ``at``, over all samples ever left out."""
        apart = self._apart(at - 1, at + 1, self._times[at], self._offsets[at])
        width = self._times[at + 1] - self._times[at - 1]
        return min(width, apart + max(self._errors[at - 1], self._errors[at], 0))

    def _apart(self, older: int, newer: int, at_ms: int, offset: int) -> int:
        """A sample's distance in time from a straight line between two others; 0 if the log did not grow."""
        since, first = self._times[older], self._offsets[older]
        grown = self._offsets[newer] - first
        if not grown:
            return 0
        return abs(round(since + (self._times[newer] - since) * (offset - first) / grown) - at_ms)


Known = Callable[[TopicPartition, LogEnd], LogEndHistory | None]
"""Returns a partition's history if it was read lately and agrees with the log end, so that it needs no new samples."""

Record = Callable[[TopicPartition, Sequence[LogEnd]], LogEndHistory]
"""Adds the samples of a verdict to a partition's history, and returns the history."""


class _Unread(NamedTuple):
    """A listed partition with a known lag: its present log end, the group's position and its lag."""

    listed: PartitionLag
    place: TopicPartition
    now: LogEnd
    position: int
    lag: int


def lag_age(event: LagEvent, observed_log_ms: int, known: Known, record: Record) -> LagAge | None:
    """Return the largest age over the listed partitions, and its partition. ``None`` if no lag is known.

    The samples get the log's own time, which no change of a wall clock moves: ``observed_log_ms`` is the log time of
    the verdict. The samples of a partition without lag are recorded too, for other groups that read the partition.
    """
    refresh_ms = 0 if event.source is Source.KAFKA else REFRESH_MS
    oldest: LagAge | None = None
    for each in _unread(event, observed_log_ms):
        history = known(each.place, each.now)
        if history is None or _is_short(history, each):
            samples = [*_commits(each.listed, event.observed_at_ms, observed_log_ms), each.now]
            history = record(each.place, samples)
        age = history.age_at(each.position, observed_log_ms, refresh_ms=refresh_ms) if each.lag else _NO_AGE
        if age is not None and (oldest is None or age.seconds > oldest.seconds):
            oldest = LagAge(*age, each.place)
    return oldest


def recorded_partitions(event: LagEvent, observed_log_ms: int, known: Known) -> Iterator[TopicPartition]:
    """The partitions whose histories `lag_age` would record."""
    for each in _unread(event, observed_log_ms):
        history = known(each.place, each.now)
        if history is None or _is_short(history, each):
            yield each.place


def _unread(event: LagEvent, observed_log_ms: int) -> Iterator[_Unread]:
    if event.status is Status.NOTFOUND:
        return
    for listed in _listed(event):
        present, position, lag = listed.log_end_offset, listed.position, listed.current_lag
        if position is not None and present is not None and lag is not None and lag >= 0:
            place = TopicPartition(listed.topic, listed.partition)
            yield _Unread(listed, place, LogEnd(observed_log_ms, present), position, lag)


def _is_short(history: LogEndHistory, unread: _Unread) -> bool:
    return bool(unread.lag) and not history.covers(unread.position)


def _listed(event: LagEvent) -> Sequence[PartitionLag]:
    """The partitions that the event lists, and the max-lag partition: at most `MOST_PARTITIONS`, the worst ones."""
    listed, worst = event.partitions, event.max_lag
    if worst is not None and (worst.topic, worst.partition) not in {(each.topic, each.partition) for each in listed}:
        listed = (*listed, worst)
    if len(listed) > MOST_PARTITIONS:
        return nlargest(MOST_PARTITIONS, listed, key=lambda each: each.current_lag or 0)
    return listed


def _commits(partition: PartitionLag, observed_at_ms: int, observed_log_ms: int) -> list[LogEnd]:
    """Return the log ends that Burrow saw at the two commits, in log time; empty if they contradict each other."""
    moved = observed_log_ms - observed_at_ms
    seen = log_ends_of(partition, observed_at_ms)
    return [LogEnd(each.at_ms + moved, each.offset) for each in seen if each.at_ms < observed_at_ms]
