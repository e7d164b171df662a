"""Implements Burrow's window and evaluation rules (v1.9.5) as a reference model without I/O.

The rules are those of ``core/internal/evaluator/caching.go`` and ``core/internal/storage/inmemory.go``. Offsets and
lags count messages. Timestamps are epoch milliseconds. ``now`` is in epoch seconds, because Burrow uses whole seconds.
One difference remains: Go's int64 wraps around and Python's integers do not. So Burrow gives another verdict if two
timestamps differ by more than 2**63.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Self

from karrot.event import LagEvent, OffsetSample, PartitionLag, Source, Status

DEFAULT_INTERVALS = 10
"""The default number of slots in a window, and of samples in a broker history."""

DEFAULT_EXPIRE_GROUP = 604_800
"""By default, Burrow forgets a group this many seconds after the group's last commit."""

Commits = Sequence[OffsetSample]
Slots = Sequence[OffsetSample | None]


class TrackedPartition(NamedTuple):
    """One partition of a group as the storage gives it to the evaluator.

    ``slots`` are the slots of the partition's window, oldest first. ``slots`` is empty if the group has committed only
    on other partitions of the topic. ``broker_offsets`` are the newest log end offsets, oldest first; empty after the
    topic was deleted.
    """

    topic: str
    partition: int
    slots: Slots = ()
    broker_offsets: Sequence[int] = ()
    owner: str = ""
    client_id: str = ""


class Window:
    """The last ``intervals`` commits of one partition, in the order of ``__consumer_offsets``.

    A commit less than ``min_distance`` seconds after the previous commit is merged with the previous commit. So the
    window covers a useful time even if a group commits often.
    """

    def __init__(self, intervals: int = DEFAULT_INTERVALS, min_distance: float = 0) -> None:
        self._intervals = intervals
        self._min_distance_ms = min_distance * 1000
        self._orders: list[int] = []
        self._samples: list[OffsetSample] = []

    @classmethod
    def restored(
        cls, orders: Sequence[int], samples: Sequence[OffsetSample], *, intervals: int, min_distance: float
    ) -> Self:
        """Make a window from stored commits, oldest first."""
        window = cls(intervals, min_distance)
        window._orders[:] = orders
        window._samples[:] = samples
        return window

    @property
    def slots(self) -> tuple[OffsetSample | None, ...]:
        """Every slot, oldest first. Empty slots come first."""
        return (None,) * (self._intervals - len(self._samples)) + tuple(self._samples)

    @property
    def orders(self) -> tuple[int, ...]:
        return tuple(self._orders)

    def add(
        self,
        offset: int,
        *,
        order: int,
        timestamp_ms: int,
        broker_offset: int,
        observed_at_ms: int | None = None,
        log_end: int | None = None,
    ) -> bool:
        """Store a commit at its position by ``order``, or drop the commit. Return whether the commit is the newest.

        ``order`` is the commit's position in ``__consumer_offsets``. A commit is dropped if this position is already
        stored, or is before all commits of a full window. Only the newest commit gets a lag, measured against
        ``broker_offset``. For a commit out of order, the log end at its time is not known. ``log_end`` is only stored,
        for callers whose ``broker_offset`` is not the log end.
        """
        position = bisect_left(self._orders, order)
        is_newest, is_full = position == len(self._orders), len(self._samples) == self._intervals
        if not is_newest and (self._orders[position] == order or (position == 0 and is_full)):
            return False
        lag = max(0, broker_offset - offset) if is_newest else None
        kept_ms = self._samples[position - 1].timestamp_ms if position else None
        merged = kept_ms is not None and timestamp_ms - kept_ms < self._min_distance_ms
        # Burrow searches for the slot from the newest to the oldest slot, and compares with each slot except the
        # oldest. So in a full ring, a commit directly after the oldest commit replaces that commit at any distance.
        replaces_oldest = position == 1 and not is_newest and is_full
        if kept_ms is not None and merged and not replaces_oldest:
            # If every merge moved the timestamp forward, no commit would get a new slot.
            timestamp_ms = kept_ms
        sample = OffsetSample(offset, timestamp_ms, observed_at_ms=observed_at_ms, lag=lag, log_end=log_end)
        if merged or replaces_oldest:
            self._orders[position - 1], self._samples[position - 1] = order, sample
        else:
            self._orders.insert(position, order)
            self._samples.insert(position, sample)
            if is_full:
                del self._orders[0], self._samples[0]
        return is_newest


def is_lag_always_not_zero(commits: Commits, allowed_lag: int = 0) -> bool:
    """Whether every known lag was larger than the allowed lag. Unknown lags are ignored."""
    lags = [commit.lag for commit in commits if commit.lag is not None]
    return not lags or min(lags) > allowed_lag


def rewind_index(commits: Commits) -> int | None:
    """Return the index of the first commit with a smaller offset than the commit before, or ``None``."""
    before = commits[0].offset if commits else 0
    for index, commit in enumerate(commits):
        if commit.offset < before:
            return index
        before = commit.offset
    return None


def has_recovered(commits: Commits, rewind: int) -> bool:
    """Whether a later commit reached the offset before the rewind at index ``rewind``. Later rewinds are ignored."""
    before = commits[rewind - 1].offset
    return any(commit.offset >= before for commit in commits[rewind:])


def is_stopped(commits: Commits, now: int) -> bool:
    """Whether the newest commit's age exceeds the time from the first to the last commit (0 for one commit)."""
    first, last = commits[0].timestamp_ms, commits[-1].timestamp_ms
    return now * 1000 - last > last - first


def had_zero_lag_recently(commits: Commits, broker_offsets: Sequence[int]) -> bool:
    """Whether one of the newest log end offsets was at most the newest commit's offset. Ignores the allowed lag."""
    committed = commits[-1].offset
    return any(end <= committed for end in broker_offsets)


def is_stalled(commits: Commits) -> bool:
    """Whether all commits have the same offset. This is true for a single commit."""
    return all(commit.offset == commits[0].offset for commit in commits)


def is_lag_not_decreasing(commits: Commits) -> bool:
    """Whether no known lag is smaller than the previous known lag."""
    lags = [commit.lag for commit in commits if commit.lag is not None]
    return all(later >= earlier for earlier, later in pairwise(lags))


def partition_status(
    window: Slots,
    broker_offsets: Sequence[int],
    current_lag: int,
    now: int,
    *,
    allowed_lag: int = 0,
    minimum_complete: float = 0.0,
) -> Status:
    """Burrow's verdict on one partition: OK, WARN, STOP, STALL or REWIND.

    ``window`` is the ring of commits, oldest first, with ``None`` for an empty slot. The partition is OK if the window
    has no commit, or if the window is less complete than ``minimum_complete`` (compared as 32-bit floats).
    """
    commits = _commits(window)
    is_complete_enough = _filled_share(len(commits), len(window)) >= _float32(minimum_complete)
    if not commits or not is_complete_enough or current_lag <= allowed_lag:
        return Status.OK
    if is_stopped(commits, now) and not had_zero_lag_recently(commits, broker_offsets):
        return Status.STOP
    rewind = rewind_index(commits)
    if rewind is not None and not has_recovered(commits, rewind):
        return Status.REWIND
    if is_lag_always_not_zero(commits, allowed_lag):
        if is_stalled(commits):
            return Status.STALL
        if is_lag_not_decreasing(commits):
            return Status.WARN
    return Status.OK


def group_status(partitions: Iterable[Status]) -> Status:
    """The worst status of the partitions. STOP, STALL and REWIND count as ERR. Without partitions, the status is OK."""
    return min(max(partitions, default=Status.OK), Status.ERR)


def current_lag(slots: Slots, broker_offsets: Sequence[int]) -> int:
    """Return the newest log end offset minus the newest commit's; 0 if this is negative, or without commit or topic."""
    newest = slots[-1] if slots else None
    return max(0, broker_offsets[-1] - newest.offset) if newest and broker_offsets else 0


def _reported(tracked: TrackedPartition, status: Status, lag: int, complete: float) -> PartitionLag:
    commits = _commits(tracked.slots)
    return PartitionLag(
        topic=tracked.topic,
        partition=tracked.partition,
        owner=tracked.owner,
        client_id=tracked.client_id,
        status_text=status.name,
        start=commits[0] if commits else None,
        end=commits[-1] if commits else None,
        current_lag=lag,
        complete=as_written(complete),
    )


def evaluate_group(
    cluster: str,
    consumer: str,
    partitions: Iterable[TrackedPartition],
    now_ms: int,
    *,
    source: Source = Source.WEBHOOK,
    show_all: bool = False,
    allowed_lag: int = 0,
    minimum_complete: float = 0.0,
) -> LagEvent:
    """Evaluate one consumer group by Burrow's rules at ``now_ms``. The event has no incident.

    The event lists the partitions worse than OK, or with ``show_all``, all partitions. If several partitions have the
    largest lag, ``max_lag`` is the first of them. So the order of ``partitions`` matters (in Burrow, the order of
    topics is random).
    """
    judged = []
    for tracked in partitions:
        slots, ends = tracked.slots, tracked.broker_offsets
        lag = current_lag(slots, ends)
        status = partition_status(
            slots, ends, lag, now_ms // 1000, allowed_lag=allowed_lag, minimum_complete=minimum_complete
        )
        judged.append((tracked, status, lag, _filled_share(len(_commits(slots)), len(slots))))
    if not judged:
        return LagEvent(cluster, consumer, Status.OK.name, 0, now_ms, source, complete=0.0, partition_count=0)
    _, statuses, lags, completes = zip(*judged, strict=True)
    return LagEvent(
        cluster,
        consumer,
        group_status(statuses).name,
        sum(lags),
        now_ms,
        source,
        complete=complete_share(completes.count(1), len(completes)),
        partition_count=len(judged),
        max_lag=_reported(*judged[lags.index(max(lags))]),
        partitions=tuple(_reported(*each) for each in judged if show_all or each[1] > Status.OK),
    )


def _commits(slots: Slots) -> list[OffsetSample]:
    return list(filter(None, slots))


def complete_share(complete: int, count: int) -> float:
    """The share of partitions whose window is full, as Burrow writes it."""
    return as_written(_float32(complete / count))


@lru_cache
def _filled_share(filled: int, slots: int) -> float:
    return _float32(max(1, filled) / slots) if slots else 0.0


@lru_cache
def _float32(number: float) -> float:
    """Round to the nearest 32-bit float. Rounding a quotient of small integers to 64 bits first changes nothing."""
    value: float = struct.unpack("f", struct.pack("f", number))[0]
    return value


@lru_cache
def as_written(number: float) -> float:
    """Return a 32-bit float as JSON shows it: the shortest decimal with the same 32-bit value, such as 0.6666667."""
    decimals = (float(f"{number:.{digits}g}") for digits in range(1, 10))
    return next(decimal for decimal in decimals if _float32(decimal) == number)
