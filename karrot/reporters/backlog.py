"""Computes how far a reporter is behind the event log."""

from typing import NamedTuple

from karrot.eventlog.base import Events, LogSize, LogUnavailableError, ReporterState, StoredEvent

_PASSED_OVER = 50
"""The number of events that the search for the oldest undamaged event reads."""


class Backlog(NamedTuple):
    """The events that a reporter has not handled yet. ``age_s`` is the age of the oldest. ``None`` means unknown."""

    events: int
    age_s: float | None


def backlog(log: Events, state: ReporterState, size: LogSize) -> Backlog:
    """A push reporter's backlog. If the reporter has no cursor in this log, its backlog is the whole log."""
    done = state.cursor.seq if state.cursor and state.cursor.log_id == log.log_id else 0
    done = max(done, size.first_seq - 1)
    waiting = max(0, size.last_seq - done)
    if not waiting:
        return Backlog(0, 0.0)
    try:
        found = log.read(done, _PASSED_OVER)
    except LogUnavailableError:  # the sizes can come from memory, and then the number is known without the events
        return Backlog(waiting, None)
    oldest = next((stored for stored in found if isinstance(stored, StoredEvent)), None)
    return Backlog(waiting, None if oldest is None else max(0, log.log_time_ms() - oldest.log_time_ms) / 1000)
