"""Combines the last complete list of a group's partitions with the events after it.

Burrow's webhook lists only the bad partitions and the one with the largest lag. Its REST API and Kafka list all.
"""

from collections.abc import Iterable, Mapping

from karrot.event import LagEvent, PartitionLag, Source, Status, TopicPartition
from karrot.eventlog.base import StoredEvent

_OK = Status.OK.name


def combine(newest: StoredEvent, complete: StoredEvent, later: Iterable[StoredEvent]) -> Iterable[PartitionLag]:
    """The partitions of ``complete``, with what the ``later`` events of the judge of ``newest`` say.

    A partition that a later webhook does not list is OK. Its lag stays as it was. If the newest verdict is older than
    the list (a list of the other judge, or of a slow request), its statuses count.
    """
    known = dict(places(complete.event))
    of_judge = [each for each in later if each.seq > complete.seq and _is_own(each) == _is_own(newest)]
    for stored in sorted(of_judge, key=lambda each: each.seq):
        if not _is_own(complete):
            known |= {at: each._replace(status_text=_OK) for at, each in known.items() if each.status_text != _OK}
        known |= places(stored.event)
    if newest.seq < complete.seq:
        statuses = places(newest.event).items()
        known |= {at: known.get(at, each)._replace(status_text=each.status_text) for at, each in statuses}
    return known.values()


def places(event: LagEvent) -> Mapping[TopicPartition, PartitionLag]:
    """The partitions that an event has, with its max-lag partition, which a webhook may not list."""
    largest = (event.max_lag,) if event.max_lag else ()
    return {TopicPartition(each.topic, each.partition): each for each in (*largest, *event.partitions)}


def _is_own(stored: StoredEvent) -> bool:
    return stored.event.source is Source.KAFKA
