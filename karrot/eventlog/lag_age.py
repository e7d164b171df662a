"""Finds the age of a group's oldest unread message from the log-end histories of its partitions. No I/O."""

from collections.abc import Callable, Sequence
from heapq import nlargest

from karrot.event import AgeKind, LagAge, LagEvent, LogEnd, PartitionLag, Source, Status, TopicPartition
from karrot.log_end_history import REFRESH_MS, LogEndHistory
from karrot.signals import log_ends_of

MOST_PARTITIONS = 1000
"""The number of partitions of one event that are looked up: those with the largest lags. More would delay others."""

History = Callable[[TopicPartition, Sequence[LogEnd]], LogEndHistory]
"""Adds the samples of a verdict to a partition's history, and returns the history."""


def lag_age(event: LagEvent, observed_log_ms: int, history: History) -> LagAge | None:
    """The largest age over the listed partitions, and the partition that has it. ``None`` if no lag is known.

    The samples get the log's own time, which no change of a wall clock moves: ``observed_log_ms`` is the log time of
    the verdict. `History` is called for each partition whose log end the event knows, also for those without lag.
    """
    if event.status is Status.NOTFOUND:
        return None
    refresh_ms = 0 if event.source is Source.KAFKA else REFRESH_MS
    oldest: LagAge | None = None
    for partition in _listed(event):
        ends = _log_ends(partition, event.observed_at_ms, observed_log_ms)
        if not ends or partition.end is None:
            continue
        place = TopicPartition(partition.topic, partition.partition)
        known = history(place, ends)
        if not partition.current_lag:
            age = LagAge(0.0, AgeKind.EXACT, place)
        else:
            found = known.age_at(partition.end.offset, observed_log_ms, refresh_ms=refresh_ms)
            if found is None:
                continue
            age = LagAge(*found, place)
        if oldest is None or age.seconds > oldest.seconds:
            oldest = age
    return oldest


def _listed(event: LagEvent) -> Sequence[PartitionLag]:
    listed = event.partitions
    worst = event.max_lag
    if worst is not None and not any(
        each.partition == worst.partition and each.topic == worst.topic for each in listed
    ):
        listed = (*listed, worst)
    if len(listed) > MOST_PARTITIONS:
        return nlargest(MOST_PARTITIONS, listed, key=lambda each: each.current_lag or 0)
    return listed


def _log_ends(partition: PartitionLag, observed_at_ms: int, observed_log_ms: int) -> list[LogEnd]:
    """The samples of a verdict by the log's time. Only the newest one if the samples contradict each other."""
    present = partition.log_end_offset
    if present is None or (partition.current_lag or 0) < 0:
        return []
    moved = observed_log_ms - observed_at_ms
    commits = [each for each in log_ends_of(partition, observed_at_ms) if each.at_ms < observed_at_ms]
    return [*(LogEnd(each.at_ms + moved, each.offset) for each in commits), LogEnd(observed_log_ms, present)]
