"""How far each reporter has come."""

from datetime import datetime

import msgspec

from karrot.eventlog.base import Damaged, EventLog, ReporterState, StoredEvent
from karrot.web.shapes import instant
from karrot.web.site import Site

__all__ = ["Place", "ReporterProgress", "Reporters", "last_event", "progress"]


class Place(msgspec.Struct):
    """A cursor: everything up to and including ``seq`` in the log ``log_id`` is done."""

    log_id: str
    seq: int


class ReporterProgress(msgspec.Struct):
    """One reporter. ``state`` is ``idle``, ``ok`` or ``failing``; one that is read by scrapes stays ``idle``.

    ``backlog_events`` and ``backlog_age_seconds`` are null for a reporter without a cursor in the present log.
    """

    name: str
    state: str
    cursor: Place | None
    backlog_events: int | None
    backlog_age_seconds: float | None
    last_success_at: datetime | None
    last_error: str | None
    last_error_at: datetime | None


class Reporters(msgspec.Struct):
    """Every reporter that is switched on."""

    reporters: list[ReporterProgress]


def progress(here: Site) -> list[ReporterProgress]:
    """The reporters that are switched on, in the order of the settings."""
    kept = {state.name: state for state in here.log.reporters()}
    last_seq = here.log.size().last_seq
    return [_progress(here.log, kept.get(name) or ReporterState(name, None), last_seq) for name in here.reporters]


def last_event(here: Site, name: str) -> StoredEvent | None:
    """The newest event that a reporter has had; one without any state is read by scrapes and has had them all."""
    state = next((state for state in here.log.reporters() if state.name == name), None)
    if state is None:
        return here.log.event(here.log.size().last_seq)
    return here.log.event(state.cursor.seq) if state.cursor and state.cursor.log_id == here.log.log_id else None


def _progress(log: EventLog, state: ReporterState, last_seq: int) -> ReporterProgress:
    cursor = state.cursor
    stands = cursor is not None and cursor.log_id == log.log_id
    return ReporterProgress(
        name=state.name,
        state=state.state,
        cursor=Place(cursor.log_id, cursor.seq) if cursor else None,
        backlog_events=max(0, last_seq - cursor.seq) if cursor and stands else None,
        backlog_age_seconds=_backlog_age(log, cursor.seq) if cursor and stands else None,
        last_success_at=instant(state.last_success_ms),
        last_error=state.last_error,
        last_error_at=instant(state.last_error_ms),
    )


def _backlog_age(log: EventLog, seq: int) -> float:
    for waiting in log.read(seq, 1):
        if not isinstance(waiting, Damaged):
            return max(0, log.log_time_ms() - waiting.log_time_ms) / 1000
    return 0.0
