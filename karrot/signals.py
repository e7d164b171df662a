"""Computes the signals of one event: scalable lag, produce and consume rate, lag in seconds, catch-up time. No I/O.

An event has three samples of the log end offset of its max-lag partition. They belong to the oldest stored commit, to
the newest stored commit, and to the evaluation. Burrow asks the broker for log ends once per ``offset-refresh`` (10 s
by default). So a sample can be one refresh old, every rate is an average, and every time has an error of about one
refresh. ``docs/signals.md`` has the measured errors.
"""

from itertools import pairwise
from typing import NamedTuple

from karrot.event import AgeKind, LagAge, LagEvent, LogEnd, PartitionLag, Status, TopicPartition

_REFRESH_SECONDS = 10.0
_MAX_SECONDS = 10 * 365 * 86_400.0
_MAX_RATE = 1e9
_MAX_TIME_MS = 253_402_300_800_000  # the year 10000: Burrow misreads some commits of Kafka 4.1 as near 8e18
_NOT_SCALABLE = frozenset({Status.STOP, Status.STALL, Status.REWIND, None})  # `None`: a state that only Kafka shows


class Signals(NamedTuple):
    """Numbers that Karrot computes from one event. ``None`` means "not known", never zero.

    Rates are messages per second, rounded to a millionth. Times are seconds, rounded to a millisecond like the input.
    Rates and times belong to the max-lag partition. ``scalable_lag`` belongs to the whole group.
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
        """The lag in seconds; ``None`` if it is only a lower bound, which cannot be compared with other lags."""
        return None if self.lag_seconds_kind is AgeKind.AT_LEAST else self.lag_seconds

    def with_age(self, age: LagAge | None) -> "Signals":
        """Replace the lag in seconds by the better one from the log-end history, if the history has one."""
        if age is None:
            return self
        return self._replace(
            lag_seconds=_rounded(_within(age.seconds, _MAX_SECONDS), 3),
            lag_seconds_extrapolated=age.kind is AgeKind.EXTRAPOLATED,
            lag_seconds_kind=age.kind,
            lag_seconds_partition=age.partition,
        )


def signals_of(event: LagEvent) -> Signals:
    """The signals of any event. A signal that cannot be computed is ``None``."""
    if event.status is Status.NOTFOUND:
        return Signals()
    # more consumers would not help the stuck partitions
    stuck = sum(partition.current_lag or 0 for partition in event.partitions if partition.status in _NOT_SCALABLE)
    scalable_lag = None if event.total_lag is None else max(0, event.total_lag - stuck)
    worst, now_ms = event.max_lag, event.observed_at_ms
    if worst is None:
        return Signals(scalable_lag)
    heads, produce_rate = log_ends_of(worst, now_ms), None
    if heads and heads[0].at_ms != heads[-1].at_ms:
        first, last = heads[0], heads[-1]
        produce_rate = _within(1000 * (last.offset - first.offset) / (last.at_ms - first.at_ms), _MAX_RATE)
    consume_rate = _consume_rate(worst, now_ms)
    lag_seconds, extrapolated = _lag_seconds(worst, heads, produce_rate, now_ms)
    lag, catch_up_seconds = worst.current_lag, None
    if lag == 0:
        catch_up_seconds = 0.0
    elif lag is not None and produce_rate is not None and consume_rate is not None and consume_rate > produce_rate:
        catch_up_seconds = _within(lag / (consume_rate - produce_rate), _MAX_SECONDS)
    return Signals(
        scalable_lag,
        _rounded(produce_rate, 6),
        _rounded(consume_rate, 6),
        _rounded(lag_seconds, 3),
        extrapolated,
        _rounded(catch_up_seconds, 3),
    )


def scalable_lag_seconds(event: LagEvent, signals: Signals) -> float | None:
    """The lag in seconds of the partitions that more consumers would help. ``None`` if it is not known.

    If the oldest unread message is on a stuck partition, which more consumers would not help, the event lacks the age
    of the other partitions. Their scalable lag gives an estimate: the time in which the stuck partition got as many
    messages as another partition has unread on average.
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
    """Return the log ends of one verdict, oldest first; empty if they contradict each other, as after a new topic."""
    heads = []
    for commit in (partition.start, partition.end):
        if commit is not None and commit.lag is not None and commit.lag >= 0:
            # The lag belongs to the time when Burrow read the commit.
            at_ms = commit.timestamp_ms if commit.observed_at_ms is None else commit.observed_at_ms
            if is_time(at_ms):
                heads.append(LogEnd(at_ms, commit.offset + commit.lag if commit.log_end is None else commit.log_end))
    lag, log_end = partition.current_lag, partition.log_end_offset
    if lag is not None and lag >= 0 and log_end is not None and is_time(now_ms):
        # If the receiver's clock is a little behind Burrow's, only the samples of the two commits are used.
        heads += [LogEnd(now_ms, log_end)] if not heads or now_ms > heads[-1].at_ms else []
    for older, newer in pairwise(heads):
        if older.at_ms > newer.at_ms or older.offset > newer.offset:
            return []
    return heads


def _consume_rate(partition: PartitionLag, now_ms: int) -> float | None:
    """Committed messages divided by the time between the commits. It is 0 for STOP, and unknown if the commits are old.

    The commits are old if the newest commit's age exceeds the time between the two, as in Burrow's rule for STOP.
    """
    if partition.status is Status.STOP:
        return 0.0
    start, end = partition.start, partition.end
    if start is None or end is None or not is_time(start.timestamp_ms) or not is_time(end.timestamp_ms):
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
    if partition.current_lag is None or position is None or not heads or not is_time(now_ms):
        return None, False
    first, extrapolated = heads[0], position < heads[0].offset
    written_ms: float = heads[-1].at_ms
    if extrapolated:
        if not produce_rate:
            return None, False
        written_ms = first.at_ms - 1000 * (first.offset - position) / produce_rate
    for older, newer in pairwise(heads):
        if older.offset <= position < newer.offset:
            share = (position - older.offset) / (newer.offset - older.offset)
            written_ms = older.at_ms + share * (newer.at_ms - older.at_ms)
            break
    seconds = (now_ms - written_ms) / 1000
    # Clocks differ, so a negative lag of at most one refresh is 0. A lower lag is unknown.
    age = _within(max(0.0, seconds) if seconds > -_REFRESH_SECONDS else seconds, _MAX_SECONDS)
    return age, extrapolated and age is not None


def is_time(at_ms: int) -> bool:
    """Whether a time is before the year 10000. Burrow misreads some commits, and producers can write any time."""
    return 0 < at_ms < _MAX_TIME_MS


def _within(value: float, bound: float) -> float | None:
    return value if 0 <= value <= bound else None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
