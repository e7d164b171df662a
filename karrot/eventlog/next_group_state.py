"""Computes a group's state after one more event: its newest summary, its incident and its partitions.

Burrow gives an incident one id, from the first verdict worse than OK to the first OK. Burrow never repeats a lost
close, forgets ids in a failover, and reports some incidents only by their close. So the log has its own rule. The first
event with a new id opens an incident. A close, another id, an observation or a deletion ends the incident.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from karrot.event import (
    NEVER_COMMITTED,
    NO_PROBLEM,
    OPEN_TRANSACTION,
    GroupKey,
    Kind,
    LagAge,
    LagEvent,
    PartitionLag,
    Source,
    Status,
    TopicPartition,
)
from karrot.eventlog.base import (
    Appended,
    EventSummary,
    GroupState,
    IncidentState,
    SourceVerdict,
    StoredEvent,
)
from karrot.signals import scalable_lag_seconds, signals_of

BAD_STATUSES = (Status.WARN, Status.STOP, Status.STALL, Status.REWIND)
"""The statuses that ``EventSummary.bad`` counts, in this order."""

_FUTURE_MS = 86_400_000
"""A commit with a time further in the future was misread (Burrow v1.9.5 reads some commits of Kafka 4.1 near 8e18)."""

REMEMBERED = 8
"""Each group keeps this many incident ids, so that a late event neither reopens an incident nor counts it again."""


class Arrival(Struct, frozen=True):
    """An event to store: a call with a transaction stores it. A store can read the event before the transaction.

    ``log_time_ms`` is the log time of arrival, ``observed_log_ms`` that of observation.
    """

    key: GroupKey
    event: LagEvent
    body: bytes
    log_time_ms: int
    observed_log_ms: int
    summary: EventSummary
    stale_after_ms: int

    def __call__(self, transaction: Any) -> Appended:
        appended: Appended = transaction.append(self)
        return appended


def with_age(arrived: Arrival, age: LagAge) -> Arrival:
    signals = arrived.summary.signals.with_age(age)
    seconds = scalable_lag_seconds(arrived.event, signals)
    summary = replace(arrived.summary, signals=signals, scalable_lag_seconds=seconds)
    return replace(arrived, summary=summary)


def after(row: GroupState | None, seq: int, arrived: Arrival) -> GroupState:
    """Return the group's state after the event with the sequence number ``seq``.

    If Burrow and Karrot's own rules both judge a group, Burrow's verdict counts, and the other one is the second
    opinion. A verdict is used for half of ``stale_after_ms``, before the group expires. A verdict is late if a newer
    one of the same judge is stored. A deletion, or a verdict on a deleted group, is late if a newer verdict of either
    judge is stored.
    """
    summary, is_gone = arrived.summary, arrived.summary.kind is Kind.DELETED
    lists_all = summary.source is not Source.WEBHOOK and not is_gone
    listed_seq = seq if lists_all else 0 if row is None or is_gone else row.summary.listed_seq
    own = SourceVerdict(seq, arrived.observed_log_ms, summary.source, summary.status_text)
    same, other = _known(row, own, is_gone=is_gone)
    if row is not None and same is not None and own.log_time_ms < same.log_time_ms:
        if lists_all and row.summary.source is Source.WEBHOOK:  # the list was requested before the webhook arrived
            row = replace(row, summary=replace(row.summary, listed_seq=seq))
        return replace(row, last_seq=seq)
    second = other if other and other.log_time_ms > own.log_time_ms - arrived.stale_after_ms // 2 else None
    if row and second and summary.source is Source.KAFKA:
        every_ms = own.log_time_ms - same.log_time_ms if same else 0
        kept = replace(row.summary, listed_seq=listed_seq, second=own, second_every_ms=every_ms)
        return replace(row, last_seq=seq, summary=kept)
    before = IncidentState() if row is None else row.incident
    every_ms = row.summary.second_every_ms if row and second and second == row.summary.second else 0
    return GroupState(
        key=arrived.key,
        seq=seq,
        last_seq=seq,
        log_time_ms=arrived.observed_log_ms,
        incident=incident_after(before, arrived.event),
        summary=replace(summary, listed_seq=listed_seq, second=second, second_every_ms=every_ms),
    )


def _known(
    row: GroupState | None, own: SourceVerdict, *, is_gone: bool
) -> tuple[SourceVerdict | None, SourceVerdict | None]:
    """The newest verdicts of the judge of ``own`` and of the other judge. A deletion counts for both judges."""
    if row is None:
        return None, None
    newest = SourceVerdict(row.seq, row.log_time_ms, row.summary.source, row.summary.status_text)
    by_judge = {one.source is Source.KAFKA: one for one in (row.summary.second, newest) if one}
    if is_gone or row.summary.kind is Kind.DELETED:
        return max(by_judge.values(), key=lambda one: one.log_time_ms), None
    is_watch = own.source is Source.KAFKA
    return by_judge.get(is_watch), by_judge.get(not is_watch)


def summarize(event: LagEvent, received_at_ms: int, age: LagAge | None = None) -> EventSummary:
    """Summarize an event, with all values that exporters need. ``age`` comes from the log-end histories."""
    known = event.status is not Status.NOTFOUND
    largest = event.max_lag if known else None
    signals = signals_of(event).with_age(age)
    statuses = [partition.status for partition in event.partitions]
    warn, stop, stall, rewind = map(statuses.count, BAD_STATUSES) if statuses else (0, 0, 0, 0)
    return EventSummary(
        status_text=event.shown_status,
        kind=event.kind,
        source=event.source,
        observed_at_ms=event.observed_at_ms,
        received_at_ms=received_at_ms,
        total_lag=event.total_lag if known else None,
        max_lag=largest.current_lag if largest else None,
        max_lag_topic=largest.topic if largest else None,
        partition_count=event.partition_count,
        complete=event.complete,
        bad=(warn, stop, stall, rewind),
        last_commit_ms=_last_commit_ms(event),
        signals=signals,
        beyond_end=event.beyond_end,
        never_committed=sum(each.status_text == NEVER_COMMITTED for each in event.partitions),
        open_transactions=sum(each.status_text == OPEN_TRANSACTION for each in event.partitions),
        is_polled=any(each.moved_at_ms is not None for each in event.partitions),
        scalable_lag_seconds=scalable_lag_seconds(event, signals),
        incident_id=event.incident_id,
        bad_partitions=sum(each.status_text not in NO_PROBLEM for each in event.partitions),
        members=event.number("members") if event.source is Source.KAFKA else None,
        rebalances=event.number("rebalances") if event.source is Source.KAFKA else None,
    )


def _last_commit_ms(event: LagEvent) -> int | None:
    at_ms = event.max_lag and event.max_lag.committed_at_ms(event.max_lag.end)
    return at_ms if at_ms is not None and 0 < at_ms < event.observed_at_ms + _FUTURE_MS else None


def incident_after(incident: IncidentState, event: LagEvent) -> IncidentState:
    """Return the group's incident after ``event``, which is the group's newest event.

    A verdict without an id (from Burrow's REST API or from Kafka) belongs to the open incident. If a group became
    silent during an incident and the incident's id comes again, the incident is not counted again.
    """
    match event.kind:
        case Kind.OBSERVATION | Kind.DELETED:
            return _ended(incident)
        case Kind.CLOSE:
            # The group is OK now, whatever the id is. A new id counts as an incident: if an incident stays below the
            # notifier's threshold, Burrow sends only its close.
            return _ended(_opened(incident, event, str(event.incident_id)))
        case Kind.INCIDENT if event.incident_id is not None:
            return _opened(incident, event, event.incident_id)
        case _:
            return incident


def _ended(incident: IncidentState) -> IncidentState:
    return incident._replace(open_id=None, since_ms=None)


def _opened(incident: IncidentState, event: LagEvent, new_id: str) -> IncidentState:
    if new_id in incident.remembered:
        return incident
    start = event.incident_start
    return IncidentState(
        open_id=new_id,
        since_ms=event.observed_at_ms if start is None else int(start.timestamp() * 1000),
        total=incident.total + 1,
        remembered=(*incident.remembered, new_id)[-REMEMBERED:],
    )


_OK = Status.OK.name


def combine(newest: StoredEvent, complete: StoredEvent, later: Iterable[StoredEvent]) -> Iterable[PartitionLag]:
    """Update the partitions of ``complete`` with the ``later`` events of the judge of ``newest``.

    A partition that a later webhook does not list is OK. The partition's lag stays as it was. If ``newest`` is older
    than ``complete`` (of the other judge or a slow request), the statuses of ``newest`` count.
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
    """Return an event's partitions, including the max-lag partition, which a webhook may not list."""
    largest = (event.max_lag,) if event.max_lag else ()
    return {TopicPartition(each.topic, each.partition): each for each in (*largest, *event.partitions)}


def _is_own(stored: StoredEvent) -> bool:
    return stored.event.source is Source.KAFKA
