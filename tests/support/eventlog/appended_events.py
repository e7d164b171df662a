"""Appends events to an event log, and reads back what it holds."""

from typing import Any, cast

from karrot.burrow.payload import to_wire
from karrot.eventlog.base import Appended, StoredEvent
from karrot.eventlog.event_log import EventLog
from support.burrow.lag_events import make_event


def append_event(log: EventLog, *, age_ms: int = 0, **overrides: Any) -> Appended:
    event = make_event(**overrides)
    return log.append(event, to_wire(event), age_ms=age_ms)


def append_many(log: EventLog, number: int) -> None:
    """Append events of a hundred groups, as many at once as one commit takes."""
    for start in range(0, number, 200):
        events = [make_event(consumer=f"group-{n % 100}", total_lag=n) for n in range(start, min(start + 200, number))]
        for pending in [log.begin(event, to_wire(event)) for event in events]:
            pending.wait()


def stored_events(log: EventLog, after: int = 0) -> list[StoredEvent]:
    """Return all events after the sequence number; a read returns a limited number."""
    found: list[StoredEvent] = []
    while page := log.read(found[-1].seq if found else after):
        assert all(isinstance(event, StoredEvent) for event in page)
        found += cast("list[StoredEvent]", page)
    return found


def group_names(log: EventLog) -> list[str]:
    return [state.key.consumer for state in log.live()]
