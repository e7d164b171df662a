"""Converts the log's values to SQLite rows and back; each event and each group has a checksum."""

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from karrot.burrow.payload import parse_stored
from karrot.event import GroupKey, Source
from karrot.eventlog.base import (
    Counter,
    Cursor,
    Damaged,
    EventSummary,
    IncidentState,
    Reject,
    ReporterState,
    StoredBody,
    StoredEvent,
)
from karrot.eventlog.group_state import Arrival, GroupRow

Row = Sequence[Any]

# Texts and bodies are read as bytes: SQLite's binding cannot return a row at all if a text in it is damaged.
EVENT_COLUMNS = "seq, received_at_ms, observed_at_ms, log_time_ms, CAST(source AS BLOB), crc, CAST(body AS BLOB)"
GROUP_COLUMNS = (
    "CAST(cluster AS BLOB), CAST(consumer AS BLOB), seq, last_seq, log_time_ms, expired, crc, CAST(state AS BLOB)"
)

_State = tuple[IncidentState, EventSummary]
_encode = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(_State).decode
_decode_reporter = msgspec.msgpack.Decoder(tuple[str, str | None, int | None, int | None]).decode


def event_row(arrived: Arrival, previous: int | None) -> Row:
    """The columns of ``events`` after ``seq``."""
    facts = (
        arrived.received_at_ms,
        arrived.event.observed_at_ms,
        arrived.log_time_ms,
        arrived.event.source.value.encode(),
    )
    return (previous, *facts[:3], arrived.event.source.value, _checksum(facts, arrived.body), arrived.body)


def stored_event(log_id: str, row: Row) -> StoredEvent | Damaged:
    """One row of `EVENT_COLUMNS`; `Damaged` if its checksum is wrong or its body cannot be decoded."""
    unread = stored_body(row)
    if unread is None:
        return Damaged(log_id, row[0])
    try:
        event = parse_stored(unread.body, observed_at_ms=unread.observed_at_ms, source=unread.source)
    except ValueError:
        return Damaged(log_id, unread.seq)
    return StoredEvent(log_id, unread.seq, unread.received_at_ms, row[3], unread.body, event)


def stored_body(row: Row) -> StoredBody | None:
    """One row of `EVENT_COLUMNS`, not decoded; ``None`` if its checksum is wrong or its source is unknown."""
    seq, received_at_ms, observed_at_ms, log_time_ms, source, crc, body = row
    if crc != _checksum((received_at_ms, observed_at_ms, log_time_ms, source), body):
        return None
    try:
        return StoredBody(seq, received_at_ms, observed_at_ms, Source(source.decode()), body)
    except ValueError:  # of a newer Karrot
        return None


def group_row(key: GroupKey, row: GroupRow) -> Row:
    """The columns of ``groups``."""
    state = _encode((row.incident, row.summary))
    crc = _checksum((key.cluster.encode(), key.consumer.encode(), row.seq, row.last_seq, row.log_time_ms), state)
    return (*key, row.seq, row.last_seq, row.log_time_ms, row.expired, row.gone, crc, state)


def group_of(row: Row) -> tuple[GroupKey, GroupRow] | None:
    """One row of `GROUP_COLUMNS`; ``None`` if its checksum is wrong."""
    cluster, consumer, seq, last_seq, log_time_ms, expired, crc, state = row
    if crc != _checksum((cluster, consumer, seq, last_seq, log_time_ms), state):
        return None
    incident, summary = _decode_state(state)
    key = GroupKey(cluster.decode(), consumer.decode())
    return key, GroupRow(seq, last_seq, log_time_ms, bool(expired), incident, summary)


def labels_text(labels: tuple[tuple[str, str], ...]) -> str:
    """A counter's labels as one key."""
    return msgspec.json.encode(labels).decode()


def counter_of(row: Row) -> Counter:
    """One row of ``counters``."""
    name, labels, value = row
    return Counter(name, msgspec.json.decode(labels, type=tuple[tuple[str, str], ...]), value)


def reporter_row(state: ReporterState) -> Row:
    """The columns of ``reporters``."""
    log_id, seq = state.cursor or (None, None)
    told = (state.state, state.last_error, state.last_error_ms, state.last_success_ms)
    return (state.name, log_id, seq, _encode(told))


def reporter_of(row: Row) -> ReporterState:
    """One row of ``reporters``."""
    name, log_id, seq, told = row
    return ReporterState(name, None if log_id is None else Cursor(log_id, seq), *_decode_reporter(told))


def reject_of(row: Row) -> Reject:
    """One row of received_at_ms, code, detail, source, body."""
    received_at_ms, code, detail, source, body = row
    return Reject(received_at_ms, code, detail, Source(source), body)


def _checksum(facts: tuple[object, ...], body: bytes | None) -> int:
    return zlib.crc32(body or b"", zlib.crc32(repr(facts).encode()))
