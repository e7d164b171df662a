"""Computes the signals of one event: scalable lag, produce and consume rate, lag in seconds, catch-up time. No I/O.

An event has three samples of the log end offset of its max-lag partition. They belong to the oldest stored commit, to
the newest stored commit, and to the evaluation. Burrow asks the broker for log ends once per ``offset-refresh`` (10 s
by default). So a sample can be that old, every rate is an average, and every time has an error of about one refresh.
``docs/signals.md`` has the measured errors.
"""

from itertools import pairwise
from typing import NamedTuple

from karrot.event import AgeKind, LagAge, LagEvent, LogEnd, OffsetSample, PartitionLag, Status, TopicPartition

_REFRESH_SECONDS = 10.0
_MAX_SECONDS = 10 * 365 * 86_400.0
_MAX_RATE = 1e9
_MAX_TIME_MS = 253_402_300_800_000  # the year 10000: Burrow misreads some commits of Kafka 4.1 as near 8e18
_NOT_SCALABLE = frozenset({Status.STOP, Status.STALL, Status.REWIND, None})  # None: a state that only Kafka shows


class Signals(NamedTuple):
    """Numbers that Karrot computes from one event. ``None`` means "not known", never zero.

    Rates are messages per second, rounded to a millionth. Times are seconds, rounded to a millisecond like the input.
    Both belong to the max-lag partition. ``scalable_lag`` belongs to the whole group.
    """

    scalable_lag: int | None = None
    produce_rate: float | None = None
    consume_rate: float | None = None
    lag_seconds: float | None = None
    lag_seconds_extrapolated: bool = False
    catch_up_seconds: float | None = None
    lag_seconds_kind: AgeKind | None = None
    lag_seconds_partition: TopicPartition | None = None

    @property
    def lag_seconds_known(self) -> float | None:
        """The lag in seconds if it is not a lower bound, so that it can be compared with others."""
        return None if self.lag_seconds_kind is AgeKind.AT_LEAST else self.lag_seconds

    def with_age(self, age: LagAge | None) -> "Signals":
        """These signals with the lag in seconds from the log-end history, if it is known: it is better."""
        if age is None:
            return self
        return self._replace(
            lag_seconds=_rounded(_within(age.seconds, _MAX_SECONDS), 3),
            lag_seconds_extrapolated=age.kind is AgeKind.EXTRAPOLATED,
            lag_seconds_kind=age.kind,
            lag_seconds_partition=age.partition,
        )


def signals_of(event: LagEvent) -> Signals:
    """The signals of one event. The function accepts every event. A signal that it cannot compute is ``None``."""
    if event.status is Status.NOTFOUND:
        return Signals()
    scalable_lag = _scalable_lag(event)
    worst, now_ms = event.max_lag, event.observed_at_ms
    if worst is None:
        return Signals(scalable_lag)
    heads = log_ends_of(worst, now_ms)
    produce_rate = _produce_rate(heads)
    consume_rate = _consume_rate(worst, now_ms)
    lag_seconds, extrapolated = _lag_seconds(worst, heads, produce_rate, now_ms)
    catch_up_seconds = _catch_up_seconds(worst.current_lag, produce_rate, consume_rate)
    return Signals(
        scalable_lag,
        _rounded(produce_rate, 6),
        _rounded(consume_rate, 6),
        _rounded(lag_seconds, 3),
        extrapolated,
        _rounded(catch_up_seconds, 3),
    )


def _scalable_lag(event: LagEvent) -> int | None:
    """The total lag minus the lag of the partitions that more consumers would not help."""
    if event.total_lag is None:
        return None
    stuck = [partition.current_lag or 0 for partition in event.partitions if partition.status in _NOT_SCALABLE]
    return max(0, event.total_lag - sum(stuck))


def scalable_lag_seconds(event: LagEvent, signals: Signals) -> float | None:
    """The lag in seconds of the partitions that more consumers would help. ``None`` if it is not known.

    If the oldest unread message is on a partition that more consumers would not help, the events do not have the age of
    the others. Then it is estimated from their scalable lag: as the time in which the stuck partition got as many
    messages as one of the others has unread on average.
    """
    age = signals.lag_seconds
    if signals.scalable_lag == event.total_lag != 0:
        return age
    stuck = [partition for partition in event.partitions if partition.status in _NOT_SCALABLE]
    place = signals.lag_seconds_partition
    if place is None and event.max_lag is not None:
        place = TopicPartition(event.max_lag.topic, event.max_lag.partition)
    held = next((each for each in stuck if TopicPartition(each.topic, each.partition) == place), None)
    if age is None or signals.scalable_lag is None or held is None or not held.current_lag:
        return age
    others = max(1, (event.partition_count or len(event.partitions)) - len(stuck))
    return _rounded(min(age, age * signals.scalable_lag / others / held.current_lag), 3)


def log_ends_of(partition: PartitionLag, now_ms: int) -> list[LogEnd]:
    """The log ends of one verdict, oldest first. None if they contradict each other, as after a new topic."""
    heads = [head for commit in (partition.start, partition.end) if commit and (head := _head_at(commit))]
    present = _present_head(partition, now_ms)
    # If the receiver's clock is a little behind Burrow's, only the samples of the two commits are used.
    if present and (not heads or present.at_ms > heads[-1].at_ms):
        heads.append(present)
    for older, newer in pairwise(heads):
        if older.at_ms > newer.at_ms or older.offset > newer.offset:
            return []
    return heads


def _head_at(commit: OffsetSample) -> LogEnd | None:
    """The log end when Burrow read the commit. The lag belongs to that reading, not to the commit's timestamp."""
    at_ms = commit.timestamp_ms if commit.observed_at_ms is None else commit.observed_at_ms
    lag = commit.lag
    if lag is None or lag < 0 or not _is_time(at_ms):
        return None
    return LogEnd(at_ms, commit.offset + lag if commit.log_end is None else commit.log_end)


def _present_head(partition: PartitionLag, now_ms: int) -> LogEnd | None:
    log_end, lag = partition.log_end_offset, partition.current_lag
    if log_end is None or lag is None or lag < 0 or not _is_time(now_ms):
        return None
    return LogEnd(now_ms, log_end)


def _produce_rate(heads: list[LogEnd]) -> float | None:
    """The messages per second that the log grew between the first and the last sample."""
    if not heads or heads[0].at_ms == heads[-1].at_ms:
        return None
    first, last = heads[0], heads[-1]
    return _within(1000 * (last.offset - first.offset) / (last.at_ms - first.at_ms), _MAX_RATE)


def _consume_rate(partition: PartitionLag, now_ms: int) -> float | None:
    """Committed messages divided by the time between the commits. It is 0 for STOP, and unknown if the commits are old.

    The commits are old if the newest is longer ago than the time between the two. Burrow's rule for STOP is the same.
    """
    if partition.status is Status.STOP:
        return 0.0
    start, end = partition.start, partition.end
    if start is None or end is None or not _is_time(start.timestamp_ms) or not _is_time(end.timestamp_ms):
        return None
    width_ms = end.timestamp_ms - start.timestamp_ms
    if width_ms <= 0 or now_ms - end.timestamp_ms > width_ms:
        return None
    return _within(1000 * (end.offset - start.offset) / width_ms, _MAX_RATE)


def _lag_seconds(
    partition: PartitionLag, heads: list[LogEnd], produce_rate: float | None, now_ms: int
) -> tuple[float | None, bool]:
    """How long ago the log end was at the group's position, and whether that was before the first sample."""
    if partition.current_lag == 0:
        return 0.0, False
    position = partition.position
    if partition.current_lag is None or position is None or not heads or not _is_time(now_ms):
        return None, False
    first = heads[0]
    if position >= first.offset:
        return _age(now_ms - _time_of(position, heads)), False
    if not produce_rate:
        return None, False
    age = _age(now_ms - first.at_ms + 1000 * (first.offset - position) / produce_rate)
    return age, age is not None


def _time_of(offset: int, heads: list[LogEnd]) -> float:
    """The time when the log grew beyond an offset. The offset must be at least that of the first sample."""
    for older, newer in pairwise(heads):
        if older.offset <= offset < newer.offset:
            share = (offset - older.offset) / (newer.offset - older.offset)
            return older.at_ms + share * (newer.at_ms - older.at_ms)
    return heads[-1].at_ms


def _age(age_ms: float) -> float | None:
    """The age in seconds. Clocks differ, so up to a refresh below zero it is 0. Further below, it is unknown."""
    seconds = age_ms / 1000
    return _within(max(0.0, seconds) if seconds > -_REFRESH_SECONDS else seconds, _MAX_SECONDS)


def _catch_up_seconds(lag: int | None, produce_rate: float | None, consume_rate: float | None) -> float | None:
    """Seconds until the lag is zero if both rates stay the same. ``None`` if the consumer is not faster."""
    if lag == 0:
        return 0.0
    if lag is None or produce_rate is None or consume_rate is None or consume_rate <= produce_rate:
        return None
    return _within(lag / (consume_rate - produce_rate), _MAX_SECONDS)


def _is_time(at_ms: int) -> bool:
    return 0 < at_ms < _MAX_TIME_MS


def _within(value: float, bound: float) -> float | None:
    return value if 0 <= value <= bound else None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
