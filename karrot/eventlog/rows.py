"""Defines the tables that both stores write, and converts events, groups, reporters and rejects to rows and back.

Each event and each group has a checksum in its row. A read returns the columns in the order of `EVENT_FIELDS` (after
`LOG_ID`) and `GROUP_FIELDS`, and strings as bytes.
"""

import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from karrot.burrow.payload import parse_stored
from karrot.event import GroupKey, Kind, LagAge, Source
from karrot.eventlog.base import (
    Cursor,
    Damaged,
    EventSummary,
    GroupState,
    IncidentState,
    Reject,
    ReporterState,
    StoredEvent,
    StoredSummary,
)
from karrot.eventlog.next_group_state import Arrival, summarize

Row = Sequence[Any]


EVENT_FIELDS = ("seq", "received_at_ms", "observed_at_ms", "log_time_ms", "source", "crc", "age", "summary", "body")
LOG_ID = (
    "coalesce((SELECT log_id FROM earlier_ids WHERE last_seq >= seq ORDER BY last_seq LIMIT 1), "
    "(SELECT log_id FROM log))"
)
"""Selects the id that the log had when it stored the event of the row."""

GROUP_FIELDS = ("cluster", "consumer", "seq", "last_seq", "log_time_ms", "expired", "crc", "state")
_CRC_BYTES = 4
Labels = tuple[tuple[str, str], ...]
_State = tuple[IncidentState, EventSummary]
_encode = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(_State).decode
_decode_summary = msgspec.msgpack.Decoder(EventSummary).decode
_decode_age = msgspec.msgpack.Decoder(LagAge).decode
_decode_reporter = msgspec.msgpack.Decoder(tuple[str, str | None, int | None, int | None]).decode


def event_row(seq: int, arrived: Arrival, previous: int | None) -> Row:
    source = arrived.event.source.value
    times = (arrived.summary.received_at_ms, arrived.event.observed_at_ms, arrived.log_time_ms)
    crc = _checksum((*times, source.encode()), arrived.body)
    summary = _encode(arrived.summary)
    sealed = _checksum((crc, arrived.log_time_ms), summary).to_bytes(_CRC_BYTES) + summary
    return (seq, previous, *times, source, crc, arrived.body, sealed)


def stored_event(row: Row) -> StoredEvent | Damaged:
    """The event in a row of `EVENT_FIELDS`; `Damaged` for a wrong checksum, or for values of a newer Karrot."""
    log_id, seq, received_at_ms, observed_at_ms, log_time_ms, source, crc, age, _, body = row
    if crc != _checksum((received_at_ms, observed_at_ms, log_time_ms, source), body, age):
        return Damaged(log_id, seq)
    try:
        event = parse_stored(body, observed_at_ms=observed_at_ms, source=Source(source.decode()))
        summary = _summary_in(row) or summarize(event, received_at_ms, _decode_age(age) if age else None)
    except (ValueError, msgspec.MsgspecError):
        return Damaged(log_id, seq)
    return StoredEvent(log_id, seq, log_time_ms, summary, body, event)


def stored_summary(row: Row) -> StoredSummary | Damaged:
    """The summary in a row of `EVENT_FIELDS`, or of its body in a row that Karrot 2.0.0a1 wrote."""
    if (summary := _summary_in(row)) is not None:
        return StoredSummary(row[0], row[1], row[4], summary)
    return Damaged(*row[:2]) if row[-1] is None else stored_event(row)


def _summary_in(row: Row) -> EventSummary | None:
    *_, log_time_ms, _, crc, _, sealed, _ = row
    if sealed is None or int.from_bytes(sealed[:_CRC_BYTES]) != _checksum((crc, log_time_ms), sealed[_CRC_BYTES:]):
        return None
    with suppress(msgspec.MsgspecError):
        return _decode_summary(sealed[_CRC_BYTES:])
    return None


def group_row(group: GroupState) -> Row:
    key, state = group.key, _encode((group.incident, group.summary))
    places = (group.seq, group.last_seq, group.log_time_ms)
    crc = _checksum((key.cluster.encode(), key.consumer.encode(), *places), state)
    return (*key, *places, group.expired, group.summary.kind is Kind.DELETED, crc, state)


def group_of(row: Row) -> GroupState | None:
    """The group in a row of `GROUP_FIELDS`; ``None`` if its checksum is wrong or only a newer Karrot can decode it."""
    cluster, consumer, seq, last_seq, log_time_ms, expired, crc, state = row
    if crc != _checksum((cluster, consumer, seq, last_seq, log_time_ms), state):
        return None
    try:
        incident, summary = _decode_state(state)
    except msgspec.MsgspecError:
        return None
    key = GroupKey(cluster.decode(), consumer.decode())
    return GroupState(key, seq, log_time_ms, summary, incident, last_seq, bool(expired))


def counter_row(name: str, labels: Labels, value: float) -> Row:
    return (name, msgspec.json.encode(labels).decode(), float(value))


def labels_of(text: str) -> Labels:
    return msgspec.json.decode(text, type=Labels)


def reporter_row(state: ReporterState) -> Row:
    log_id, seq = state.cursor or (None, None)
    outcome = (state.state, state.last_error, state.last_error_ms, state.last_success_ms)
    return (state.name, log_id, seq, _encode(outcome))


def reporter_of(row: Row) -> ReporterState:
    name, log_id, seq, outcome = row
    return ReporterState(name, None if log_id is None else Cursor(log_id, seq), *_decode_reporter(outcome))


def reject_row(reject: Reject) -> Row:
    texts = (reject.code, reject.detail, reject.source.value)
    return (reject.received_at_ms, *(text.encode("utf-8", "surrogatepass") for text in texts), reject.body)


def reject_of(row: Row) -> Reject:
    """The reject in a row of received_at_ms, code, detail, source, body."""
    received_at_ms, *texts, body = row
    code, detail, source = map(text_of, texts)
    return Reject(received_at_ms, code, detail, Source(source), body)


def text_of(value: str | bytes) -> str:
    """Decode a string: PostgreSQL returns bytes, because its ``text`` cannot hold every string."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def _checksum(facts: tuple[object, ...], body: bytes | None, age: bytes | None = None) -> int:
    return zlib.crc32(age or b"", zlib.crc32(body or b"", zlib.crc32(repr(facts).encode())))


class Table:
    """Builds the statements that insert rows into one table. ``columns`` have their types in PostgreSQL.

    A new row replaces the row with the same key, or changes it by ``update``. The key is the first ``keys`` columns.
    ``insert_values`` inserts one row. ``insert_arrays`` inserts many rows, from an array for each column.
    """

    def __init__(self, name: str, columns: str, *, keys: int = 0, update: str = "") -> None:
        names, self.types = zip(*(column.split() for column in columns.split(", ")), strict=True)
        self.columns = columns
        self._name, self._keys = name, names[:keys]
        insert = f"INSERT INTO {name} ({', '.join(names)})"
        update = update or ", ".join(f"{each} = excluded.{each}" for each in names[keys:])
        conflict = f"ON CONFLICT ({', '.join(names[:keys])}) DO UPDATE SET {update}" if keys else ""
        self.insert_values = f"{insert} VALUES ({', '.join('?' * len(names))}) {conflict}"
        arrays = ", ".join(f"%b::{each}[]" for each in self.types)  # binary: as text, they take 50 times longer
        self.insert_arrays = f"{insert} SELECT * FROM unnest({arrays}) {conflict}"

    def find(self, names: str) -> str:
        """The statement that finds many rows, from an array for each column of the key."""
        arrays, keys = ", ".join(f"%b::{each}[]" for each in self.types[: len(self._keys)]), ", ".join(self._keys)
        return f"SELECT {names} FROM {self._name} JOIN unnest({arrays}) AS wanted ({keys}) USING ({keys})"


EVENTS = Table(
    "events",
    "seq bigint, previous bigint, received_at_ms bigint, observed_at_ms bigint, log_time_ms bigint, source bytea, "
    "crc bigint, body bytea, summary bytea",
)
GROUPS = Table(
    "groups",
    "cluster bytea, consumer bytea, seq bigint, last_seq bigint, log_time_ms bigint, expired boolean, gone boolean, "
    "crc bigint, state bytea",
    keys=2,
)
LOG_ENDS = Table("log_ends", "cluster bytea, topic bytea, partition bigint, touched_ms bigint, samples bytea", keys=3)
HEARD = Table("heard", "cluster bytea, at_ms bigint", keys=1)
COUNTERS = Table(
    "counters", "name text, labels text, value float8", keys=2, update="value = counters.value + excluded.value"
)
REJECTS = Table("rejects", "received_at_ms bigint, code bytea, detail bytea, source bytea, body bytea")
REPORTERS = Table("reporters", "name text, log_id text, seq bigint, state bytea", keys=1)
NOTES = Table("notes", "reporter text, name text, value bytea", keys=2)
