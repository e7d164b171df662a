"""Makes the JSON bodies of the API from the event log's types.

The classes in this module define the JSON answers and their description in ``/openapi.json``.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from karrot.event import ABANDONED, LEFT, NO_PROBLEM, OffsetSample, PartitionLag, Source
from karrot.eventlog.base import EventLog, GroupState, Listed, Reject, StoredEvent
from karrot.eventlog.database_status import DatabaseStatus
from karrot.text import EPOCH

_FOUND = {LEFT: "the group has left the topic", ABANDONED: "the group is abandoned"}


class BadPartitions(msgspec.Struct):
    """The number of partitions in each status worse than OK."""

    WARN: int
    STOP: int
    STALL: int
    REWIND: int
    BEYOND_END: int
    NEVER_COMMITTED: int


class OpenIncident(msgspec.Struct):
    """The open incident of a group. ``id`` is the id that Burrow (or watch) gave to the incident."""

    id: str
    since: datetime | None


class Group(msgspec.Struct):
    """A consumer group as of its newest event. Lags are in messages, rates in messages per second. Null is unknown.

    ``lag`` is the total lag of all partitions. ``max_lag`` is the lag of the worst partition. ``scalable_lag`` is the
    total lag without the partitions that are STOP, STALL or REWIND, because more consumers cannot help these
    partitions. ``lag_seconds`` is the age of the oldest unread message. ``lag_seconds_topic`` and
    ``lag_seconds_partition`` name the listed partition where this age is largest. ``lag_seconds_kind`` says how the age
    is known: ``at_least`` is a lower bound. ``catch_up_seconds`` and the rates belong to the partition with the largest
    lag. ``complete`` is the share of partitions whose window of commits is full. ``observed_at`` is the time of the
    verdict. ``last_event_at`` is the time when it arrived.
    """

    cluster: str
    consumer: str
    status: str
    status_code: int | None
    lag: int | None
    max_lag: int | None
    max_lag_topic: str | None
    scalable_lag: int | None
    lag_seconds: float | None
    lag_seconds_extrapolated: bool
    lag_seconds_kind: Literal["exact", "extrapolated", "at_least"] | None
    lag_seconds_topic: str | None
    lag_seconds_partition: int | None
    catch_up_seconds: float | None
    produce_rate: float | None
    consume_rate: float | None
    partition_count: int | None
    bad_partitions: BadPartitions
    complete: float | None
    kind: str
    source: str
    observed_at: datetime | None
    last_event_at: datetime | None
    last_commit_at: datetime | None
    incident: OpenIncident | None
    incidents_total: int


class GroupPage(msgspec.Struct):
    """Groups in the order of cluster and name.

    To get the next page, send ``next`` as the parameter ``after``. On the last page, ``next`` is null.
    """

    groups: list[Group]
    next: str | None


class Commit(msgspec.Struct):
    """One stored commit.

    ``timestamp_ms`` is the commit's time as the source gave it. ``committed_at`` is this time as text, or null if it is
    not known. With ``watch``, ``timestamp_ms`` is the time of a poll, and ``committed_at`` that of the last poll that
    saw the offset move. ``lag`` is the lag when the source saw the commit.
    """

    offset: int
    timestamp_ms: int
    committed_at: datetime | None
    lag: int | None
    observed_at: datetime | None


class Partition(msgspec.Struct):
    """One partition of a group, with its oldest and newest stored commit, and its lag at the time of the verdict.

    Without a commit, ``lag_at_most`` is an upper bound of the lag. Log starts are known only from Kafka.
    """

    topic: str
    partition: int
    status: str
    lag: int | None
    lag_at_most: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    start: Commit | None
    end: Commit | None
    owner: str
    client_id: str
    complete: float | None


class GroupEvent(msgspec.Struct):
    """One past verdict of a group. ``bad_partitions`` counts the listed partitions that were worse than OK."""

    event_id: str
    observed_at: datetime | None
    received_at: datetime | None
    source: str
    kind: str
    status: str
    lag: int | None
    max_lag: int | None
    bad_partitions: int
    incident_id: str | None


class SecondOpinion(msgspec.Struct):
    """The verdict of the other source: Burrow, or Karrot's rules on Kafka. ``found`` is about the bad partitions."""

    source: str
    status: str
    observed_at: datetime | None
    found: str


class GroupDetail(Group):
    """A group with its partitions and its recent events, newest first.

    ``partitions`` are all partitions if ``all_partitions_listed`` is true. At ``partitions_listed_at``, an event listed
    all. Later webhooks have changed some. Otherwise they are the partitions worse than OK, perhaps without
    ``max_lag_partition``. ``partitions`` is null if Karrot no longer keeps the newest event, or cannot read it now.
    ``second_opinion`` is null if the other source has no recent verdict, or agrees. ``events`` is null if Karrot cannot
    read the events now.
    """

    partitions: list[Partition] | None
    all_partitions_listed: bool
    partitions_listed_at: datetime | None
    second_opinion: SecondOpinion | None
    max_lag_partition: Partition | None
    events: list[GroupEvent] | None


class RejectedBody(msgspec.Struct):
    """A refused body. ``detail`` is the error that its sender got. ``body`` is its first 4 KiB, decoded as text."""

    received_at: datetime | None
    code: str
    detail: str
    source: str
    body: str


class Rejects(msgspec.Struct):
    """The newest refused bodies, newest first.

    A request that was refused because of its headers is only counted, because it has no body to keep.
    """

    rejects: list[RejectedBody]


class EventLogStatus(msgspec.Struct):
    """The event log, as the answering replica sees it.

    ``replica`` is the name of the replica that answers, and ``leader`` is the name of the replica that leads. Both are
    null if only one machine can use the event log, and ``leader`` is also null if no replica leads. ``fault`` is why
    the last commit or read failed. ``memory_age_seconds`` is the age of the groups, if they come from memory because
    the event log cannot be read. ``database`` is null if the event log is not in PostgreSQL.
    """

    log_id: str
    events: int
    bytes: int
    replica: str | None
    leader: str | None
    fault: str | None
    memory_age_seconds: float | None
    database: DatabaseStatus | None


def instant(epoch_ms: int | None) -> datetime | None:
    """Convert epoch milliseconds to a time in UTC.

    Returns ``None`` for a value outside the calendar's range, which can come from a commit that Burrow misread.
    """
    if epoch_ms is None:
        return None
    try:
        return EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return None


def group_shape(state: GroupState) -> Group:
    """A group without its partitions."""
    return Group(**_group_fields(state))


def group_detail(state: GroupState, listed: Listed | None, recent: Sequence[StoredEvent] | None) -> GroupDetail:
    """A group with all details. What cannot be read is ``None``."""
    event, complete = (listed.newest.event, listed.complete) if listed else (None, None)
    partitions = listed.partitions if listed and complete and complete.seq != state.seq else event and event.partitions
    return GroupDetail(
        **_group_fields(state),
        partitions=None if partitions is None else [_partition_shape(partition) for partition in partitions],
        all_partitions_listed=complete is not None or state.summary.source is not Source.WEBHOOK,
        partitions_listed_at=instant(complete.event.observed_at_ms if complete else None),
        second_opinion=second_opinion(listed),
        max_lag_partition=_partition_shape(event.max_lag) if event and event.max_lag else None,
        events=None if recent is None else [event_shape(stored) for stored in recent],
    )


def second_opinion(listed: Listed | None) -> SecondOpinion | None:
    """What the other source says on the partitions that are bad in the newest event."""
    if listed is None or listed.second is None:
        return None
    other, own = listed.second.event, listed.newest.event.partitions
    bad = {(each.topic, each.partition) for each in own if each.status_text not in NO_PROBLEM}
    found = Counter(_found(each) for each in other.partitions if (each.topic, each.partition) in bad)
    words = ", ".join(f"{words} ({number})" for words, number in found.items())
    return SecondOpinion(other.source.value, other.shown_status, instant(other.observed_at_ms), words)


def _found(partition: PartitionLag) -> str:
    first = partition.first_unread
    if first and first.written_ms is None and not partition.current_lag:
        return "nothing to read"
    lag = "unknown lag" if partition.current_lag is None else f"lag {partition.current_lag}"
    return _FOUND.get(partition.status_text, f"{partition.status_text} with {lag}")


def event_shape(stored: StoredEvent) -> GroupEvent:
    """One event of a group's history."""
    event = stored.event
    return GroupEvent(
        event_id=stored.event_id,
        observed_at=instant(event.observed_at_ms),
        received_at=instant(stored.received_at_ms),
        source=event.source.value,
        kind=event.kind.value,
        status=event.status_text,
        lag=event.total_lag,
        max_lag=event.max_lag.current_lag if event.max_lag else None,
        bad_partitions=sum(partition.status_text not in NO_PROBLEM for partition in event.partitions),
        incident_id=event.incident_id,
    )


def reject_shape(reject: Reject) -> RejectedBody:
    """One refused body."""
    body = reject.body.decode(errors="replace")
    return RejectedBody(instant(reject.received_at_ms), reject.code, reject.detail, reject.source.value, body)


def event_log_status(log: EventLog) -> EventLogStatus:
    """The state of a log. Raises `LogUnavailableError` if it cannot be read and nothing is known."""
    size, age_ms = log.size(), log.memory_age_ms()
    return EventLogStatus(
        log_id=log.log_id,
        events=size.events,
        bytes=size.bytes,
        replica=log.replica,
        leader=log.leader(),
        fault=log.writable(),
        memory_age_seconds=None if age_ms is None else age_ms / 1000,
        database=log.database(),
    )


def _group_fields(state: GroupState) -> dict[str, Any]:
    summary, opened = state.summary, state.incident.open_id
    signals = summary.signals
    kind, oldest = signals.lag_seconds_kind, signals.lag_seconds_partition
    return {
        "cluster": state.key.cluster,
        "consumer": state.key.consumer,
        "status": summary.status_text,
        "status_code": summary.status,
        "lag": summary.total_lag,
        **{name: getattr(summary, name) for name in ("max_lag", "max_lag_topic", "partition_count", "complete")},
        **signals._asdict(),
        "lag_seconds_kind": None if kind is None else kind.name.lower(),
        "lag_seconds_topic": None if oldest is None else oldest.topic,
        "lag_seconds_partition": None if oldest is None else oldest.partition,
        "bad_partitions": BadPartitions(*summary.bad, (summary.beyond_end or (0,))[0], summary.never_committed),
        "kind": summary.kind.value,
        "source": summary.source.value,
        "observed_at": instant(summary.observed_at_ms),
        "last_event_at": instant(summary.received_at_ms),
        "last_commit_at": instant(summary.last_commit_ms),
        "incident": opened if opened is None else OpenIncident(opened, instant(state.incident.since_ms)),
        "incidents_total": state.incident.total,
    }


def _partition_shape(partition: PartitionLag) -> Partition:
    return Partition(
        topic=partition.topic,
        partition=partition.partition,
        status=partition.status_text,
        lag=partition.current_lag,
        lag_at_most=partition.at_most,
        log_start_offset=partition.log_start,
        log_end_offset=partition.log_end_offset,
        start=_commit_shape(partition, partition.start),
        end=_commit_shape(partition, partition.end),
        owner=partition.owner,
        client_id=partition.client_id,
        complete=partition.complete,
    )


def _commit_shape(partition: PartitionLag, sample: OffsetSample | None) -> Commit | None:
    if sample is None:
        return None
    committed_at, observed_at = instant(partition.committed_at_ms(sample)), instant(sample.observed_at_ms)
    return Commit(sample.offset, sample.timestamp_ms, committed_at, sample.lag, observed_at)
