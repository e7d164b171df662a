"""Makes the context that a reporter is built with, over an event log in memory by default."""

from functools import partial

from karrot.eventlog.base import EventLog
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.base import Context
from karrot.reporters.commits_read import cut_off
from support.manual_clock import ManualClock


def make_context(
    name: str, settings: dict[str, str] | None = None, *, log: EventLog | None = None, clock: ManualClock | None = None
) -> Context:
    """Make the context of a reporter."""
    clock = clock or ManualClock()
    log = log or MemoryEventLog(clock)
    return Context(
        name=name,
        settings=settings or {},
        count=log.count,
        clock=clock,
        log_time_ms=log.log_time_ms,
        recall=partial(log.recall, name),
        remember=partial(log.remember, name),
        cut_off=partial(cut_off, log),
        heard=log.heard,
        event=log.event,
    )
