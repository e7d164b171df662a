"""Converts the log's values to rows of a database and back, with a checksum for each event and each group.

A reader gets the columns of `EVENT_FIELDS` and `GROUP_FIELDS` in this order, and texts among them as bytes.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from karrot.burrow.payload import parse_stored
from karrot.event import GroupKey, LagAge, Source
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

EVENT_FIELDS = ("seq", "received_at_ms", "observed_at_ms", "log_time_ms", "source", "crc", "age", "body")
GROUP_FIELDS = ("cluster", "consumer", "seq", "last_seq", "log_time_ms", "expired", "crc", "state")

_State = tuple[IncidentState, EventSummary]
_encode = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(_State).decode
_decode_age = msgspec.msgpack.Decoder(LagAge).decode
_decode_reporter = msgspec.msgpack.Decoder(tuple[str, str | None, int | None, int | None]).decode


def event_row(arrived: Arrival, previous: int | None) -> Row:
    """The values of the columns of ``events`` after ``seq``."""
    facts = (
        arrived.received_at_ms,
        arrived.event.observed_at_ms,
        arrived.log_time_ms,
        arrived.event.source.value.encode(),
    )
    age = None if arrived.age is None else _encode(arrived.age)
    crc = _checksum(facts, arrived.body, age)
    return (previous, *facts[:3], arrived.event.source.value, crc, arrived.body, age)


def stored_event(log_id: str, row: Row) -> StoredEvent | Damaged:
    """The event in a row of `EVENT_FIELDS`; `Damaged` if its checksum is wrong or its body cannot be decoded."""
    unread = stored_body(row)
    if unread is None:
        return Damaged(log_id, row[0])
    try:
        event = parse_stored(unread.body, observed_at_ms=unread.observed_at_ms, source=unread.source)
    except ValueError:
        return Damaged(log_id, unread.seq)
    return StoredEvent(log_id, unread.seq, unread.received_at_ms, row[3], unread.body, event, unread.age)


def stored_body(row: Row) -> StoredBody | None:
    """The event in a row of `EVENT_FIELDS`, not decoded; ``None`` for a wrong checksum or unknown values."""
    seq, received_at_ms, observed_at_ms, log_time_ms, source, crc, age, body = row
    if crc != _checksum((received_at_ms, observed_at_ms, log_time_ms, source), body, age):
        return None
    try:
        known = None if age is None else _decode_age(age)
        return StoredBody(seq, received_at_ms, observed_at_ms, Source(source.decode()), body, known)
    except (ValueError, msgspec.MsgspecError):  # a source or an age that only a newer Karrot knows
        return None


def group_row(key: GroupKey, row: GroupRow) -> Row:
    state = _encode((row.incident, row.summary))
    crc = _checksum((key.cluster.encode(), key.consumer.encode(), row.seq, row.last_seq, row.log_time_ms), state)
    return (*key, row.seq, row.last_seq, row.log_time_ms, row.expired, row.gone, crc, state)


def group_of(row: Row) -> tuple[GroupKey, GroupRow] | None:
    """The group in a row of `GROUP_FIELDS`; ``None`` if its checksum is wrong or only a newer Karrot can decode it."""
    cluster, consumer, seq, last_seq, log_time_ms, expired, crc, state = row
    if crc != _checksum((cluster, consumer, seq, last_seq, log_time_ms), state):
        return None
    try:
        incident, summary = _decode_state(state)
    except msgspec.MsgspecError:
        return None
    key = GroupKey(cluster.decode(), consumer.decode())
    return key, GroupRow(seq, last_seq, log_time_ms, bool(expired), incident, summary)


def labels_text(labels: tuple[tuple[str, str], ...]) -> str:
    """A counter's labels as JSON text, the key of its row."""
    return msgspec.json.encode(labels).decode()


def counter_of(row: Row) -> Counter:
    name, labels, value = row
    return Counter(name, msgspec.json.decode(labels, type=tuple[tuple[str, str], ...]), value)


def reporter_row(state: ReporterState) -> Row:
    log_id, seq = state.cursor or (None, None)
    outcome = (state.state, state.last_error, state.last_error_ms, state.last_success_ms)
    return (state.name, log_id, seq, _encode(outcome))


def reporter_of(row: Row) -> ReporterState:
    name, log_id, seq, outcome = row
    return ReporterState(name, None if log_id is None else Cursor(log_id, seq), *_decode_reporter(outcome))


def reject_of(row: Row) -> Reject:
    """The reject in a row of received_at_ms, code, detail, source, body."""
    received_at_ms, *texts, body = row
    code, detail, source = map(text_of, texts)
    return Reject(received_at_ms, code, detail, Source(source), body)


def text_of(value: str | bytes) -> str:
    """A text as SQLite gives it, or its bytes in PostgreSQL, which cannot store every text."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def _checksum(facts: tuple[object, ...], body: bytes | None, age: bytes | None = None) -> int:
    return zlib.crc32(age or b"", zlib.crc32(body or b"", zlib.crc32(repr(facts).encode())))
