"""Burrow's window and evaluation rules (v1.9.5) as a pure reference model.

Taken from ``core/internal/evaluator/caching.go`` and ``core/internal/storage/inmemory.go``. Offsets and lags are
messages, timestamps epoch milliseconds, ``now`` epoch seconds (Burrow looks at whole seconds only). Go's int64 wraps
around where Python's integers grow: a difference of two timestamps beyond 2**63 gives another verdict in Burrow.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from karrot.event import LagEvent, OffsetSample, PartitionLag, Source, Status

DEFAULT_INTERVALS = 10
"""Slots of a window and samples of a broker history, unless configured."""

_NAMES = {status: status.name for status in Status}
_OK = Status.OK.name

Commits = Sequence[OffsetSample]
Slots = Sequence[OffsetSample | None]


class TrackedPartition(NamedTuple):
    """What the storage hands to the evaluator of one partition.

    ``slots`` are those of its window, oldest first, or empty where only siblings were ever committed;
    ``broker_offsets`` are the log end offsets seen lately, oldest first, empty once the topic is gone.
    """

    topic: str
    partition: int
    slots: Slots = ()
    broker_offsets: Sequence[int] = ()
    owner: str = ""
    client_id: str = ""


class Window:
    """The last ``intervals`` commits of one partition, by their order in ``__consumer_offsets``.

    Commits closer than ``min_distance`` seconds to their predecessor are merged into it, so that a fast committer
    keeps a window of useful width.
    """

    def __init__(self, intervals: int = DEFAULT_INTERVALS, min_distance: float = 0) -> None:
        self._intervals = intervals
        self._min_distance_ms = min_distance * 1000
        self._orders: list[int] = []
        self._samples: list[OffsetSample] = []

    @property
    def slots(self) -> tuple[OffsetSample | None, ...]:
        """Every slot, oldest first; the empty ones lead."""
        return (None,) * (self._intervals - len(self._samples)) + tuple(self._samples)

    @property
    def orders(self) -> tuple[int, ...]:
        """The order of each stored commit, oldest first."""
        return tuple(self._orders)

    def add(
        self, offset: int, *, order: int, timestamp_ms: int, broker_offset: int, observed_at_ms: int | None = None
    ) -> bool:
        """Store a commit where its order belongs, or drop it; return whether it is the newest.

        Dropped: an order that is stored already, and one older than all of a full window. Only the newest has a lag,
        against the newest ``broker_offset`` known; out of order nobody knows where the log ended then.
        """
        position = bisect_left(self._orders, order)
        is_newest = position == len(self._orders)
        if not is_newest and (self._orders[position] == order or (position == 0 and self._is_full)):
            return False
        lag = max(0, broker_offset - offset) if is_newest else None
        self._place(position, order, OffsetSample(offset, timestamp_ms, lag, observed_at_ms), is_newest=is_newest)
        return is_newest

    @property
    def _is_full(self) -> bool:
        return len(self._samples) == self._intervals

    def _place(self, position: int, order: int, sample: OffsetSample, *, is_newest: bool) -> None:
        # Burrow looks for the slot from the newest backwards and stops at the oldest without comparing the two, so a
        # commit right after the oldest of a full ring replaces it, however close they are.
        if position == 1 and not is_newest and self._is_full:
            self._replace(0, order, sample)
            return
        if position > 0:
            kept_ms = self._samples[position - 1].timestamp_ms
            if sample.timestamp_ms - kept_ms < self._min_distance_ms:
                # The older timestamp stays: a later one would be pushed ahead by every merge, and no slot ever filled.
                merged = OffsetSample(sample.offset, kept_ms, sample.lag, sample.observed_at_ms)
                self._replace(position - 1, order, merged)
                return
        self._insert(position, order, sample)

    def _replace(self, position: int, order: int, sample: OffsetSample) -> None:
        self._orders[position] = order
        self._samples[position] = sample

    def _insert(self, position: int, order: int, sample: OffsetSample) -> None:
        self._orders.insert(position, order)
        self._samples.insert(position, sample)
        if len(self._samples) > self._intervals:
            del self._orders[0], self._samples[0]


def is_lag_always_not_zero(commits: Commits, allowed_lag: int = 0) -> bool:
    """Whether no commit was within the allowed lag. An unknown lag proves nothing."""
    lags = [commit.lag for commit in commits if commit.lag is not None]
    return not lags or min(lags) > allowed_lag


def rewind_index(commits: Commits) -> int | None:
    """Where the offset first went back: the index of the smaller one, ``None`` if it never did."""
    before = commits[0].offset if commits else 0
    for index, commit in enumerate(commits):
        if commit.offset < before:
            return index
        before = commit.offset
    return None


def has_recovered(commits: Commits, rewind: int) -> bool:
    """Whether the offset before the rewind at index ``rewind`` was reached again. Later rewinds do not count."""
    before = commits[rewind - 1].offset
    return any(commit.offset >= before for commit in commits[rewind:])


def is_stopped(commits: Commits, now: int) -> bool:
    """Whether the newest commit is older than the commits are wide; one commit alone is zero wide."""
    first, last = commits[0].timestamp_ms, commits[-1].timestamp_ms
    return now * 1000 - last > last - first


def had_zero_lag_recently(commits: Commits, broker_offsets: Sequence[int]) -> bool:
    """Whether some log end offset seen lately was within the newest commit. Ignores the allowed lag."""
    committed = commits[-1].offset
    return any(end <= committed for end in broker_offsets)


def is_stalled(commits: Commits) -> bool:
    """Whether all commits are of the same offset; one commit is."""
    return all(commit.offset == commits[0].offset for commit in commits)


def is_lag_not_decreasing(commits: Commits) -> bool:
    """Whether no known lag is smaller than the known one before it."""
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

    ``window`` is the ring, oldest first, ``None`` for an empty slot. A window less complete than
    ``minimum_complete`` (compared as 32-bit floats) is never bad, nor is one without a commit.
    """
    commits = _commits(window)
    is_complete_enough = _filled_share(len(commits), len(window)) >= _float32(minimum_complete)
    return _status(commits, broker_offsets, current_lag, now, allowed_lag) if is_complete_enough else Status.OK


def _status(commits: Commits, broker_offsets: Sequence[int], current_lag: int, now: int, allowed_lag: int) -> Status:
    """The verdict on a window that is complete enough."""
    if not commits or current_lag <= allowed_lag:
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
    """The worst of the partitions' verdicts, where STOP, STALL and REWIND are ERR; OK without partitions."""
    return min(max(partitions, default=Status.OK), Status.ERR)


def current_lag(slots: Slots, broker_offsets: Sequence[int]) -> int:
    """The newest log end offset less the newest commit; 0 if negative, or if there is no commit or no topic."""
    newest = slots[-1] if slots else None
    return max(0, broker_offsets[-1] - newest.offset) if newest and broker_offsets else 0


def evaluate_partition(
    tracked: TrackedPartition, now: int, *, allowed_lag: int = 0, minimum_complete: float = 0.0
) -> PartitionLag:
    """One partition as Burrow reports it."""
    return _reported(tracked, *_judged(tracked, now, allowed_lag, _float32(minimum_complete)))


def _judged(
    tracked: TrackedPartition, now: int, allowed_lag: int, minimum_complete: float
) -> tuple[Status, int, float]:
    """The verdict, the current lag and the filled share of the window."""
    slots, ends = tracked.slots, tracked.broker_offsets
    commits = _commits(slots)
    complete = _filled_share(len(commits), len(slots))
    lag = current_lag(slots, ends)
    is_complete_enough = complete >= minimum_complete
    return _status(commits, ends, lag, now, allowed_lag) if is_complete_enough else Status.OK, lag, complete


def _reported(tracked: TrackedPartition, status: Status, lag: int, complete: float) -> PartitionLag:
    commits = _commits(tracked.slots)
    return PartitionLag(
        tracked.topic,
        tracked.partition,
        _NAMES[status],
        lag,
        commits[0] if commits else None,
        commits[-1] if commits else None,
        tracked.owner,
        tracked.client_id,
        _as_written(complete),
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
    """One consumer group as Burrow reports it, observed at ``now_ms``, without an incident.

    Lists the partitions worse than OK, or all of them with ``show_all``. The first of several largest lags is the
    maximum, so the order of ``partitions`` matters there (Burrow's own order of topics is random).
    """
    now, minimum = now_ms // 1000, _float32(minimum_complete)
    judged = [(tracked, *_judged(tracked, now, allowed_lag, minimum)) for tracked in partitions]
    if not judged:
        return LagEvent(cluster, consumer, _OK, 0, now_ms, source, complete=0.0, partition_count=0)
    _, statuses, lags, completes = zip(*judged, strict=True)
    status = group_status(statuses)
    listed = [_reported(*each) for each in judged if show_all or each[1] > Status.OK]
    return LagEvent(
        cluster=cluster,
        consumer=consumer,
        status_text=_NAMES[status],
        total_lag=sum(lags),
        observed_at_ms=now_ms,
        source=source,
        complete=_as_written(_float32(completes.count(1) / len(completes))),
        partition_count=len(judged),
        max_lag=_reported(*judged[lags.index(max(lags))]),
        partitions=tuple(listed),
    )


def _commits(slots: Slots) -> list[OffsetSample]:
    return list(filter(None, slots))


@lru_cache
def _filled_share(filled: int, slots: int) -> float:
    return _float32(max(1, filled) / slots) if slots else 0.0


@lru_cache
def _float32(number: float) -> float:
    """The nearest 32-bit float. A quotient of small integers rounds the same whether by 64 bits first or not."""
    value: float = struct.unpack("f", struct.pack("f", number))[0]
    return value


@lru_cache
def _as_written(number: float) -> float:
    """A 32-bit float as its reader gets it from JSON: the shortest decimal that is still the same, 0.6666667."""
    decimals = (float(f"{number:.{digits}g}") for digits in range(1, 10))
    return next(decimal for decimal in decimals if _float32(decimal) == number)
