"""Implements what the event logs in SQLite and in PostgreSQL have in common: reads, and the start of writes.

Each event and each group has a checksum in its row. A read returns the columns in the order of `EVENT_FIELDS` and
`GROUP_FIELDS`, and strings as bytes.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from karrot.burrow.payload import parse_stored
from karrot.clock import Clock
from karrot.event import TEST_CLUSTERS, GroupKey, Kind, LagAge, LagEvent, PartitionLag, Source, Status, TopicPartition
from karrot.eventlog.base import (
    READ_LIMIT,
    Appended,
    Counter,
    Cursor,
    Damaged,
    EventLog,
    EventSummary,
    GroupState,
    IncidentState,
    Listed,
    Reject,
    ReporterState,
    StoredEvent,
    StoredSummary,
)
from karrot.eventlog.next_group_state import Arrival, LiveGroups, summarize
from karrot.eventlog.transaction_rules import TOUCHED_MS
from karrot.eventlog.writer import InlineWriter, Job, WriteBuffer, Writer
from karrot.telemetry import Metric

Row = Sequence[Any]


EVENT_FIELDS = ("seq", "received_at_ms", "observed_at_ms", "log_time_ms", "source", "crc", "age", "summary", "body")
GROUP_FIELDS = ("cluster", "consumer", "seq", "last_seq", "log_time_ms", "expired", "crc", "state")
_CRC_BYTES = 4
_Labels = tuple[tuple[str, str], ...]
_State = tuple[IncidentState, EventSummary]
_encode = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(_State).decode
_decode_summary = msgspec.msgpack.Decoder(EventSummary).decode
_decode_age = msgspec.msgpack.Decoder(LagAge).decode
_decode_reporter = msgspec.msgpack.Decoder(tuple[str, str | None, int | None, int | None]).decode


def event_row(arrived: Arrival, previous: int | None) -> Row:
    """The values of the columns of ``events`` after ``seq``."""
    source = arrived.event.source.value
    times = (arrived.summary.received_at_ms, arrived.event.observed_at_ms, arrived.log_time_ms)
    crc = _checksum((*times, source.encode()), arrived.body)
    summary = _encode(arrived.summary)
    sealed = _checksum((crc, arrived.log_time_ms), summary).to_bytes(_CRC_BYTES) + summary
    return (previous, *times, source, crc, arrived.body, sealed)


def stored_event(log_id: str, row: Row) -> StoredEvent | Damaged:
    """The event in a row of `EVENT_FIELDS`; `Damaged` for a wrong checksum, or for values of a newer Karrot."""
    seq, received_at_ms, observed_at_ms, log_time_ms, source, crc, age, _, body = row
    if crc != _checksum((received_at_ms, observed_at_ms, log_time_ms, source), body, age):
        return Damaged(log_id, seq)
    try:
        event = parse_stored(body, observed_at_ms=observed_at_ms, source=Source(source.decode()))
        summary = _summary_in(row) or summarize(event, received_at_ms, _decode_age(age) if age else None)
    except (ValueError, msgspec.MsgspecError):
        return Damaged(log_id, seq)
    return StoredEvent(log_id, seq, log_time_ms, summary, body, event)


def stored_summary(log_id: str, row: Row) -> StoredSummary | Damaged:
    """The summary in a row of `EVENT_FIELDS`, or of its body in a row that Karrot 2.0.0a1 wrote."""
    if (summary := _summary_in(row)) is not None:
        return StoredSummary(log_id, row[0], row[3], summary)
    return Damaged(log_id, row[0]) if row[-1] is None else stored_event(log_id, row)


def _summary_in(row: Row) -> EventSummary | None:
    _, _, _, log_time_ms, _, crc, _, sealed, _ = row
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


def labels_text(labels: _Labels) -> str:
    """Encode a counter's labels as JSON, for its row's key."""
    return msgspec.json.encode(labels).decode()


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
    """Decode a string: PostgreSQL returns bytes, because its ``text`` cannot hold every string."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def _checksum(facts: tuple[object, ...], body: bytes | None, age: bytes | None = None) -> int:
    return zlib.crc32(age or b"", zlib.crc32(body or b"", zlib.crc32(repr(facts).encode())))


_OK = Status.OK.name


def combine(newest: StoredEvent, complete: StoredEvent, later: Iterable[StoredEvent]) -> Iterable[PartitionLag]:
    """Update the partitions of ``complete`` with the ``later`` events of the judge of ``newest``.

    A partition that a later webhook does not list is OK. The partition's lag stays as it was. If ``newest`` is older
    than ``complete`` (of the other judge or a slow request), the statuses of ``newest`` count.
    """
    known = dict(places(complete.event))
    of_judge = [each for each in later if each.seq > complete.seq and _is_own(each) == _is_own(newest)]
    for stored in sorted(of_judge, key=lambda each: each.seq):
        if not _is_own(complete):
            known |= {at: each._replace(status_text=_OK) for at, each in known.items() if each.status_text != _OK}
        known |= places(stored.event)
    if newest.seq < complete.seq:
        statuses = places(newest.event).items()
        known |= {at: known.get(at, each)._replace(status_text=each.status_text) for at, each in statuses}
    return known.values()


def places(event: LagEvent) -> Mapping[TopicPartition, PartitionLag]:
    """Return an event's partitions, including the max-lag partition, which a webhook may not list."""
    largest = (event.max_lag,) if event.max_lag else ()
    return {TopicPartition(each.topic, each.partition): each for each in (*largest, *event.partitions)}


def _is_own(stored: StoredEvent) -> bool:
    return stored.event.source is Source.KAFKA


T = TypeVar("T")
NEARLY_FULL = 0.9
"""If a log is too large, it is reduced to this share of its limit."""

READ_BYTES = 8 << 20
"""The bodies of one read have at most this many bytes together, unless there is only one body."""

_UNREAD_BYTES = 1 << 20
_STEP = 256
"""Skipping a row's body costs this many times less than reading and parsing the body."""

_FIRST = GroupKey("", "")


class Limits(NamedTuple):
    """The limits of a log.

    A group is no longer shown after ``stale_after_ms`` without an event. An event is deleted at the age
    ``retention_ms``. ``max_bytes`` limits the size of the database: the oldest events are dropped first.
    ``max_consumers`` limits the number of groups. ``log_end_max_bytes`` limits the log-end histories in the database;
    they never take more than a quarter of ``max_bytes``, so that events have room.
    """

    stale_after_ms: int = 300_000
    retention_ms: int = 86_400_000
    max_bytes: int = 1 << 30
    max_consumers: int = 50_000
    log_end_max_bytes: int = 1 << 26

    @property
    def most_log_end_bytes(self) -> int:
        return min(self.log_end_max_bytes, self.max_bytes // 4)


class ReadConnection(Protocol):
    """A connection that runs one statement with ``?`` for each parameter, and returns a cursor on the rows."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Any:
        """Run a statement. The cursor has ``fetchone`` and ``fetchall``, and is an iterator of rows."""


class SqlEventLog(EventLog, ABC):
    """The event log on a database, except the lead. Subclasses set the writer."""

    _writer: Writer | InlineWriter
    _event_columns: str
    _group_columns: str
    _events_table = "events"

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._buffer = WriteBuffer()
        self._live = LiveGroups(self, stale_after_ms=limits.stale_after_ms, source=self._source)

    @abstractmethod
    def _reading(self) -> AbstractContextManager[ReadConnection]:
        """Lend a connection for one short read. Raises `LogUnavailableError`."""

    @abstractmethod
    def _page(self, connection: ReadConnection, after: int, limit: int) -> Iterable[Row]:
        """Return at most ``limit`` rows of events after ``after``, with at most about `READ_BYTES` of bodies."""

    @abstractmethod
    def _key(self, key: GroupKey) -> tuple[Any, Any]:
        """A group's key as the parameters of a statement."""

    def append(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> Appended:
        return self.begin(event, body, age_ms=age_ms).wait()

    def begin(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> Job[Appended]:
        key, log_ms = GroupKey(event.cluster, event.consumer), self.log_time_ms()
        summary = summarize(event, self._clock.wall_ms())
        stale_ms = self._limits.stale_after_ms
        return self._writer.begin(Arrival(key, event, body, log_ms, log_ms - max(0, age_ms), summary, stale_ms))

    def read(self, after: int, limit: int = READ_LIMIT) -> Sequence[StoredEvent | Damaged]:
        with self._reading() as connection:
            log_id = self.log_id
            found = list(self._page(connection, after, min(limit, READ_LIMIT)))
        return [stored_event(log_id, row) for row in found]

    def recent(self, keys: Sequence[GroupKey], limit: int = 50) -> Sequence[Sequence[StoredSummary]]:
        most_bytes = min(_UNREAD_BYTES, READ_BYTES // max(1, len(keys)))
        chains = self._chains(keys, limit, most_bytes=most_bytes, whole=False)
        return [[each for each in chain if isinstance(each, StoredSummary)] for chain in chains]

    def event(self, seq: int) -> StoredEvent | None:
        sql = f"SELECT {self._event_columns} FROM {self._events_table} WHERE seq = ?"
        with self._reading() as connection:
            row = connection.execute(sql, (seq,)).fetchone()
        found = None if row is None else stored_event(self.log_id, row)
        return found if isinstance(found, StoredEvent) else None

    def latest(self, after: GroupKey | None = None, limit: int = READ_LIMIT) -> Sequence[GroupState]:
        beyond = ">=" if after is None else ">"
        sql = (
            f"SELECT {self._group_columns} FROM groups WHERE (cluster, consumer) {beyond} (?, ?) "
            "AND log_time_ms >= ? AND NOT gone ORDER BY cluster, consumer LIMIT ?"
        )
        with self._reading() as connection:
            parameters = (*self._key(after or _FIRST), self._oldest_live(), min(limit, READ_LIMIT))
            return [state for row in connection.execute(sql, parameters) if (state := group_of(row))]

    def changed(self, after: int, limit: int = READ_LIMIT) -> Sequence[GroupState]:
        sql = f"SELECT {self._group_columns} FROM groups WHERE last_seq > ? ORDER BY last_seq LIMIT ?"
        with self._reading() as connection:
            found = connection.execute(sql, (after, min(limit, READ_LIMIT)))
            return [state for row in found if (state := group_of(row))]

    def live(self) -> Sequence[GroupState]:
        return self._live.read()

    def group(self, key: GroupKey) -> GroupState | None:
        sql = (
            f"SELECT {self._group_columns} FROM groups "
            "WHERE cluster = ? AND consumer = ? AND log_time_ms >= ? AND NOT gone"
        )
        with self._reading() as connection:
            row = connection.execute(sql, (*self._key(key), self._oldest_live())).fetchone()
        return None if row is None else group_of(row)

    def listed(self, state: GroupState) -> Listed | None:
        seq, second = state.summary.listed_seq, state.second_opinion(self.log_time_ms())
        complete = self.event(seq) if seq else None
        if complete is not None and complete.log_time_ms < self._oldest_live():
            complete = None  # without a list, do not read the later events: they may be many
        found = (
            self._chains([state.key], READ_LIMIT, after=seq, most_bytes=_UNREAD_BYTES, whole=True) if complete else [[]]
        )
        later = [each for each in found[0] if isinstance(each, StoredEvent)]
        newest = next((each for each in (complete, *later) if each and each.seq == state.seq), None)
        newest = newest or self.event(state.seq)
        if newest is None:
            return None
        partitions = combine(newest, complete, later) if complete else places(newest.event).values()
        return Listed(newest, complete, self.event(second.seq) if second else None, tuple(partitions))

    def heard(self) -> Mapping[str, int]:
        return {name: self.wall_ms_at(at) for name, at in self._heard().items() if at and name not in TEST_CLUSTERS}

    def _chains(
        self, keys: Sequence[GroupKey], limit: int, *, most_bytes: int, after: int = 0, whole: bool
    ) -> list[list[StoredSummary | Damaged]]:
        """Read each group's newest events after ``after``, newest first, up to ``most_bytes``.

        Without ``whole``, a body is read only if its row has no summary. Skipping a body costs less than reading the
        body, but not nothing.
        """
        chains: list[list[StoredSummary | Damaged]] = [[] for _ in keys]
        if limit < 1 or not keys:
            return chains
        events, decode = self._events_table, stored_event if whole else stored_summary
        size = "length(e.body)" if whole else f"coalesce(length(e.summary) + length(e.body) / {_STEP}, length(e.body))"
        body = "e.body" if whole else "CASE WHEN e.summary IS NULL THEN e.body END AS body"
        fields = ", ".join(("e.previous", *(f"e.{name}" for name in EVENT_FIELDS[:-1]), body))
        sql = (
            f"WITH RECURSIVE chain AS (SELECT {fields}, column1 AS number, 1 AS place, {size} AS bytes "
            f"FROM (VALUES {', '.join(f'({number}, ?, ?)' for number in range(len(keys)))}) AS asked "
            f"JOIN groups g ON g.cluster = column2 AND g.consumer = column3 JOIN {events} e ON e.seq = g.last_seq "
            f"WHERE e.seq > ? UNION ALL SELECT {fields}, number, place + 1, bytes + {size} "
            f"FROM chain c JOIN {events} e ON e.seq = c.previous WHERE place < ? AND bytes < ? AND e.seq > ?) "
            f"SELECT number, {self._event_columns} FROM chain ORDER BY seq DESC"
        )
        asked = (part for key in keys for part in self._key(key))
        with self._reading() as connection:
            log_id, parameters = self.log_id, (*asked, after, min(limit, READ_LIMIT), most_bytes, after)
            found = connection.execute(sql, parameters).fetchall()
        for number, *row in found:
            chains[number].append(decode(log_id, row))
        return chains

    def _heard(self) -> Mapping[str, int]:
        """The log time of each cluster's last webhook, or 0 if the cluster was forgotten since."""
        with self._reading() as connection:
            found = connection.execute("SELECT cluster, at_ms FROM heard").fetchall()
        return {text_of(cluster): at_ms for cluster, at_ms in found}

    def wall_ms_at(self, log_ms: int) -> int:
        return self._clock.wall_ms() - max(0, self.log_time_ms() - log_ms)

    def cursor(self, reporter: str) -> Cursor | None:
        with self._reading() as connection:
            row = connection.execute("SELECT log_id, seq FROM reporters WHERE name = ?", (reporter,)).fetchone()
        return None if row is None or row[0] != self.log_id else Cursor(*row)

    def save_reporter(self, state: ReporterState) -> None:
        self._lead_writes(lambda transaction: transaction.save_reporter(state))

    def reporters(self) -> Sequence[ReporterState]:
        with self._reading() as connection:
            found = connection.execute("SELECT name, log_id, seq, state FROM reporters").fetchall()
        return [reporter_of(row) for row in sorted(found)]

    def recall(self, reporter: str, name: str) -> bytes | None:
        with self._reading() as connection:
            note = "SELECT value FROM notes WHERE reporter = ? AND name = ?"
            found = connection.execute(note, (reporter, name)).fetchone()
        return None if found is None else found[0]

    def remember(self, reporter: str, name: str, value: bytes) -> None:
        self._lead_writes(lambda transaction: transaction.remember(reporter, name, value))

    def revise(self, reporter: str, name: str, change: Callable[[bytes | None], bytes]) -> None:
        def revised(transaction: Any) -> None:
            transaction.remember(reporter, name, change(transaction.recall(reporter, name)))

        self._writer.begin(revised).wait()

    def count(self, metric: Metric | str, by: float = 1, **labels: str) -> None:
        self._buffer.count(metric if isinstance(metric, str) else metric.name, by, labels)

    def counters(self) -> Sequence[Counter]:
        with self._reading() as connection:
            kept = connection.execute("SELECT name, labels, value FROM counters").fetchall()
        stored = {(name, msgspec.json.decode(labels, type=_Labels)): value for name, labels, value in kept}
        return self._buffer.counters(self.log_id, stored)

    def reject(self, reject: Reject) -> None:
        self._buffer.reject(reject)

    def rejects(self, limit: int = 50) -> Sequence[Reject]:
        waiting = self._buffer.rejects()[::-1][:limit]
        sql = "SELECT received_at_ms, code, detail, source, body FROM rejects ORDER BY id DESC LIMIT ?"
        with self._reading() as connection:
            kept = connection.execute(sql, (limit - len(waiting),)).fetchall()
        return [*waiting, *map(reject_of, kept)]

    def expire(self) -> int:
        before_ms = self._oldest_live()
        sql = "SELECT 1 FROM groups WHERE NOT expired AND NOT gone AND log_time_ms < ? LIMIT 1"
        with self._reading() as connection:
            if connection.execute(sql, (before_ms,)).fetchone() is None:
                return 0
        return self._lead_writes(lambda transaction: int(transaction.expire(before_ms)))

    def flush(self) -> None:
        self._writer.begin(lambda _transaction: None).wait()

    def _forget_log_ends(self, before_ms: int) -> None:
        """Delete the log-end histories beyond the limits of age and size, some hundred in each transaction."""
        while self._lead_writes(lambda transaction: transaction.forget_log_ends_before(before_ms - TOUCHED_MS)):
            pass
        enough = self._limits.most_log_end_bytes
        while self._log_end_bytes() > enough:
            # New histories never make the table too large, so no history in use is dropped repeatedly.
            enough = int(self._limits.most_log_end_bytes * NEARLY_FULL)
            if not self._lead_writes(lambda transaction: transaction.forget_oldest_log_ends()):
                break

    def _log_end_bytes(self) -> int:
        with self._reading() as connection:
            return int(connection.execute("SELECT log_end_bytes FROM log").fetchone()[0])

    def _source(self) -> object:
        return self.log_id

    def _lead_writes(self, work: Callable[[Any], T]) -> T:
        return self._writer.begin(work).wait()

    def _oldest_live(self) -> int:
        return self.log_time_ms() - self._limits.stale_after_ms
