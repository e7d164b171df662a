"""Finds the age of a group's oldest unread message from the log-end histories of its partitions. No I/O."""

from collections.abc import Callable, Sequence
from heapq import nlargest

from karrot.event import AgeKind, LagAge, LagEvent, LogEnd, PartitionLag, Source, Status, TopicPartition
from karrot.eventlog.log_end_history import REFRESH_MS, Age, LogEndHistory
from karrot.signals import log_ends_of

MOST_PARTITIONS = 1000
"""The number of partitions of one event that are looked up: those with the largest lags. More would delay others."""

_NO_AGE = Age(0.0, AgeKind.EXACT)

Known = Callable[[TopicPartition, LogEnd], LogEndHistory | None]
"""The history of a partition if it needs no new samples: it was read lately, and the log end does not contradict it."""

Record = Callable[[TopicPartition, Sequence[LogEnd]], LogEndHistory]
"""Adds the samples of a verdict to a partition's history, and returns the history."""


def lag_age(event: LagEvent, observed_log_ms: int, known: Known, record: Record) -> LagAge | None:
    """The largest age over the listed partitions, and the partition that has it. ``None`` if no lag is known.

    The samples get the log's own time, which no change of a wall clock moves: ``observed_log_ms`` is the log time of
    the verdict. The samples of a partition without lag are recorded too, for other groups that read it.
    """
    if event.status is Status.NOTFOUND:
        return None
    refresh_ms = 0 if event.source is Source.KAFKA else REFRESH_MS
    oldest: LagAge | None = None
    for partition in _listed(event):
        present, lag = partition.log_end_offset, partition.current_lag
        if partition.end is None or present is None or lag is None or lag < 0:
            continue
        place = TopicPartition(partition.topic, partition.partition)
        now = LogEnd(observed_log_ms, present)
        committed = partition.end.offset
        history = known(place, now)
        if history is None or (lag and not history.covers(committed)):
            history = record(place, [*_commits(partition, event.observed_at_ms, observed_log_ms), now])
        age = history.age_at(committed, observed_log_ms, refresh_ms=refresh_ms) if lag else _NO_AGE
        if age is not None and (oldest is None or age.seconds > oldest.seconds):
            oldest = LagAge(*age, place)
    return oldest


def _listed(event: LagEvent) -> Sequence[PartitionLag]:
    """The partitions that the event lists, and the max-lag partition: at most `MOST_PARTITIONS`, the worst ones."""
    listed, worst = event.partitions, event.max_lag
    if worst is not None and (worst.topic, worst.partition) not in {(each.topic, each.partition) for each in listed}:
        listed = (*listed, worst)
    if len(listed) > MOST_PARTITIONS:
        return nlargest(MOST_PARTITIONS, listed, key=lambda each: each.current_lag or 0)
    return listed


def _commits(partition: PartitionLag, observed_at_ms: int, observed_log_ms: int) -> list[LogEnd]:
    """The log ends that Burrow saw with the two commits, by the log's time; none if they contradict each other."""
    moved = observed_log_ms - observed_at_ms
    seen = log_ends_of(partition, observed_at_ms)
    return [LogEnd(each.at_ms + moved, each.offset) for each in seen if each.at_ms < observed_at_ms]
