"""Makes the JSON of ``/api/v1/event-log``: the event log, the replica that leads, and the database server."""

import msgspec

from karrot.eventlog.base import DatabaseStatus, EventLog


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
