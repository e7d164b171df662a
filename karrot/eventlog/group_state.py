"""Computes the state of a group after one more event. Pure, and the same for every store."""

from dataclasses import dataclass
from typing import NamedTuple

from karrot.event import GroupKey, Kind, LagEvent, Source
from karrot.eventlog import incidents
from karrot.eventlog.base import Changed, EventSummary, GroupState, IncidentState
from karrot.eventlog.event_summary import summarize


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event on its way into the log, with everything that can be computed before its turn comes.

    ``log_time_ms`` is the log's time at arrival; ``observed_log_ms`` the log's time when the event was observed.
    """

    key: GroupKey
    event: LagEvent
    body: bytes
    received_at_ms: int
    log_time_ms: int
    observed_log_ms: int
    summary: EventSummary

    @property
    def from_webhook(self) -> bool:
        """Whether Burrow posted the event itself."""
        return self.event.source is Source.WEBHOOK


class GroupRow(NamedTuple):
    """A group as a log stores it.

    ``seq`` is its newest event by observation, ``last_seq`` by arrival; ``log_time_ms`` is when the newest was
    observed. ``expired`` says that the group fell silent and was counted as expired.
    """

    seq: int
    last_seq: int
    log_time_ms: int
    expired: bool
    incident: IncidentState
    summary: EventSummary

    @property
    def gone(self) -> bool:
        """Whether the group was deleted."""
        return self.summary.kind is Kind.DELETED


def arrival(event: LagEvent, body: bytes, *, received_at_ms: int, log_time_ms: int, age_ms: int) -> Arrival:
    """Prepare an event that was observed ``age_ms`` before ``log_time_ms``."""
    return Arrival(
        key=GroupKey(event.cluster, event.consumer),
        event=event,
        body=body,
        received_at_ms=received_at_ms,
        log_time_ms=log_time_ms,
        observed_log_ms=log_time_ms - max(0, age_ms),
        summary=summarize(event, received_at_ms),
    )


def after(row: GroupRow | None, seq: int, arrived: Arrival) -> GroupRow:
    """The group once the event numbered ``seq`` is in the log."""
    if row is not None and arrived.observed_log_ms < row.log_time_ms:
        return row._replace(last_seq=seq)
    before = IncidentState() if row is None else row.incident
    return GroupRow(
        seq=seq,
        last_seq=seq,
        log_time_ms=arrived.observed_log_ms,
        expired=False,
        incident=incidents.after(before, arrived.event),
        summary=arrived.summary,
    )


def state_of(key: GroupKey, row: GroupRow) -> GroupState:
    """The group as readers see it."""
    return GroupState(key, row.seq, row.log_time_ms, row.summary, row.incident)


def changed(key: GroupKey, row: GroupRow) -> Changed:
    """The group as readers see it who ask for changes."""
    return Changed(row.last_seq, key, None if row.gone else state_of(key, row))
