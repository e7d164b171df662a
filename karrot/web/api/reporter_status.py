"""Makes the JSON of ``/api/v1/reporters``: the progress of each reporter."""

from datetime import datetime

import msgspec

from karrot.eventlog.base import EventLog, LogSize, ReporterState, StoredEvent
from karrot.reporters.backlog import Backlog, backlog
from karrot.reporters.last_send import NOTE, Fact, Report, read
from karrot.web.api.json_bodies import instant
from karrot.web.context import WebContext, if_readable


class Place(msgspec.Struct):
    """A cursor. The reporter has handled all events up to and including ``seq`` in the log ``log_id``."""

    log_id: str
    seq: int


class SentValue(msgspec.Struct):
    """One value that the destination accepted, under the value's name at the destination."""

    what: str
    value: float
    unit: str | None
    observed_at: datetime | None


class RefusedValue(msgspec.Struct):
    """One value that is never sent. ``reason`` is the label of the same name in the counter of dropped values."""

    what: str
    reason: str
    text: str
    at: datetime | None


class LastSend(msgspec.Struct):
    """What a reporter reports about its last send. ``sent`` and ``refused`` are the newest values of each kind."""

    at: datetime | None
    sent_count: int
    facts: list[Fact]
    sent: list[SentValue]
    refused: list[RefusedValue]


class ReporterProgress(msgspec.Struct):
    """One reporter. ``state`` is ``idle``, ``ok`` or ``failing``. A reporter that is scraped stays ``idle``.

    ``backlog_events`` and ``backlog_age_seconds`` are null for a reporter to which Karrot delivers no events.
    ``last_send`` is null for a reporter that does not report its sends.
    """

    name: str
    state: str
    cursor: Place | None
    backlog_events: int | None
    backlog_age_seconds: float | None
    last_success_at: datetime | None
    last_error: str | None
    last_error_at: datetime | None
    last_send: LastSend | None


class Reporters(msgspec.Struct):
    """Every reporter that is switched on.

    ``leader`` is the replica that leads: it hands the events to the reporters. It is null if no replica leads, and if
    only one machine can use the event log.
    """

    reporters: list[ReporterProgress]
    leader: str | None


def progress(context: WebContext) -> list[ReporterProgress]:
    """The reporters that are switched on, in the order of the settings."""
    kept = {state.name: state for state in context.log.reporters()}
    size = context.log.size()
    return [_progress(context.log, name, kept.get(name), size) for name in context.reporters]


def last_event(context: WebContext, name: str) -> StoredEvent | None:
    """The newest event that a reporter has handled. For a scraped reporter, which has no state, the newest event."""
    state = next((state for state in context.log.reporters() if state.name == name), None)
    if state is None:
        return context.log.event(context.log.size().last_seq)
    return context.log.event(state.cursor.seq) if state.cursor and state.cursor.log_id == context.log.log_id else None


def _progress(log: EventLog, name: str, kept: ReporterState | None, size: LogSize) -> ReporterProgress:
    state = kept or ReporterState(name, None)
    behind: Backlog | None = None if kept is None else backlog(log, kept, size)
    return ReporterProgress(
        name=name,
        state=state.state,
        cursor=Place(*state.cursor) if state.cursor else None,
        backlog_events=behind.events if behind else None,
        backlog_age_seconds=behind.age_s if behind else None,
        last_success_at=instant(state.last_success_ms),
        last_error=state.last_error,
        last_error_at=instant(state.last_error_ms),
        last_send=_last_send(read(if_readable(lambda: log.recall(name, NOTE), None))),
    )


def _last_send(report: Report | None) -> LastSend | None:
    if report is None:
        return None
    return LastSend(
        at=instant(report.at_ms),
        sent_count=report.sent_count,
        facts=list(report.facts),
        sent=[SentValue(each.what, each.value, each.unit, instant(each.observed_at_ms)) for each in report.sent],
        refused=[RefusedValue(each.what, each.reason, each.text, instant(each.at_ms)) for each in report.refused],
    )
