"""Make the opt-in metrics by topic and by partition, from the newest event of each group.

A webhook lists the partitions worse than OK and the one with the largest lag; Burrow's REST API and Kafka list all, so
only they give the lag of a topic. Each costs a read of an event per group and scrape.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import Sample

from karrot import telemetry
from karrot.event import LagEvent, PartitionLag, Source, Status
from karrot.eventlog.base import Events
from karrot.reporters.prometheus.families import ListedFamily, sample
from karrot.reporters.prometheus.group_metrics import ExportedGroup
from karrot.reporters.prometheus.labels import label_value

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
        partitions.update(_places(row, stored.event))
        if stored.event.source is not Source.WEBHOOK:
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
    yield ListedFamily(telemetry.PARTITION_LAG, _lags(listed))
    yield ListedFamily(telemetry.PARTITION_STATUS_CODE, _status_codes(listed))


def _places(row: ExportedGroup, event: LagEvent) -> Iterator[tuple[Place, PartitionLag]]:
    for partition in (*((event.max_lag,) if event.max_lag else ()), *event.partitions):
        yield (row.cluster, row.consumer, label_value(partition.topic), str(partition.partition)), partition


def _lags(listed: Listed) -> Iterator[Sample]:
    for values, partition in listed.partitions.items():
        if partition.current_lag is not None:
            yield sample(telemetry.PARTITION_LAG, values, partition.current_lag)


def _status_codes(listed: Listed) -> Iterator[Sample]:
    for values, partition in listed.partitions.items():
        if partition.status in _PARTITION_STATUSES:
            yield sample(telemetry.PARTITION_STATUS_CODE, values, partition.status.value)
