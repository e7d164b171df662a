"""Make the opt-in metrics by topic and by partition, from the newest event of each group.

A webhook lists the partitions worse than OK and the one with the largest lag; Burrow's REST API and Kafka list all, so
only they give the lag of a topic. Each costs a read of an event per group and scrape.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from karrot import telemetry
from karrot.event import PartitionLag, Source, Status
from karrot.eventlog.base import Events
from karrot.reporters.prometheus.families import ListedFamily, label_value, sample
from karrot.reporters.prometheus.group_metrics import ExportedGroup

_PARTITION_STATUSES = (Status.OK, Status.WARN, Status.STOP, Status.STALL, Status.REWIND)

Place = tuple[str, str, str, str]
"""Cluster, consumer, topic and partition, as label values."""


class Listed(NamedTuple):
    """The partitions of every group by their labels, and whether the event that lists them lists all."""

    partitions: Mapping[Place, PartitionLag]
    complete: frozenset[tuple[str, str]]


def listed_partitions(log: Events, rows: Sequence[ExportedGroup]) -> Listed:
    """What the newest event of each group lists."""
    partitions: dict[Place, PartitionLag] = {}
    complete = set()
    for row in rows:
        stored = log.event(row.seq)
        if stored is None:
            continue
        event = stored.event
        for partition in (*((event.max_lag,) if event.max_lag else ()), *event.partitions):
            place = (row.cluster, row.consumer, label_value(partition.topic), str(partition.partition))
            partitions[place] = partition
        if event.source is not Source.WEBHOOK:
            complete.add((row.cluster, row.consumer))
    return Listed(partitions, frozenset(complete))


def topic_families(listed: Listed) -> Iterator[ListedFamily]:
    """The lag by topic."""
    lags: dict[tuple[str, str, str], int] = {}
    for (cluster, consumer, topic, _), partition in listed.partitions.items():
        if partition.current_lag is not None and (cluster, consumer) in listed.complete:
            key = (cluster, consumer, topic)
            lags[key] = lags.get(key, 0) + partition.current_lag
    metric = telemetry.CONSUMER_TOPIC_LAG
    yield ListedFamily(metric, (sample(metric, values, lag) for values, lag in lags.items()))


def partition_families(listed: Listed) -> Iterator[ListedFamily]:
    """Lag and status by partition."""
    lag, code, partitions = telemetry.PARTITION_LAG, telemetry.PARTITION_STATUS_CODE, listed.partitions
    lags = ((values, each.current_lag) for values, each in partitions.items())
    yield ListedFamily(lag, (sample(lag, values, value) for values, value in lags if value is not None))
    codes = ((values, each.status) for values, each in partitions.items() if each.status in _PARTITION_STATUSES)
    yield ListedFamily(code, (sample(code, values, status.value) for values, status in codes))
