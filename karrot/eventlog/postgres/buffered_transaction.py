"""Collects the rows of one transaction in memory, and writes them to PostgreSQL together.

A commit needs two round trips, however many events it has: the first takes the lock and finds the groups and log-end
histories of the events, and the second writes everything.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from karrot import telemetry
from karrot.event import ClusterPartition, GroupKey
from karrot.eventlog.base import GroupState, LogUnavailableError, ReporterState
from karrot.eventlog.next_group_state import Arrival
from karrot.eventlog.postgres.connections import Integers, Session, Texts
from karrot.eventlog.postgres.schema import NOW_MS, new_block
from karrot.eventlog.sql_log import GROUP_FIELDS, Limits, Row, event_row, group_of, group_row, labels_text, reporter_row
from karrot.eventlog.transaction_rules import (
    EVICTED_AT_ONCE,
    MOST_CLUSTERS,
    ROW_BYTES,
    LogEndHistories,
    Transaction,
)
from karrot.eventlog.writer import KEPT_REJECTS, PendingWrites

_BLOCKS = 16
"""The events fill about this many blocks. A block is dropped whole, so the log loses a sixteenth at once."""

_ROW_OVERHEAD = 120
"""The bytes of an event's row and of its entry in the index, in addition to its body."""

_LEAST_BLOCK_BYTES = 1 << 18
_INTEGER_LIMIT = 1 << 63

LOCK_LOG = (
    "SELECT log_id, log_ms, first_seq, last_seq, groups, log_end_bytes, block, block_bytes, block_ms, leader, "
    f"{NOW_MS} FROM log FOR UPDATE"
)
FIND_GROUPS = (
    f"SELECT {', '.join(f'g.{name}' for name in GROUP_FIELDS)} FROM groups g "
    "JOIN unnest(%s, %s) AS wanted (cluster, consumer) USING (cluster, consumer)"
)
FIND_LOG_ENDS = (
    "SELECT e.cluster, e.topic, e.partition, e.samples FROM log_ends e "
    "JOIN unnest(%s, %s, %s) AS wanted (cluster, topic, partition) USING (cluster, topic, partition)"
)
_INSERT_EVENTS = (
    "INSERT INTO events "
    "(block, seq, previous, received_at_ms, observed_at_ms, log_time_ms, source, crc, body, summary) "
    "SELECT %s, * FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
_SAVE_GROUPS = (
    "INSERT INTO groups (cluster, consumer, seq, last_seq, log_time_ms, expired, gone, crc, state) "
    "SELECT cluster, consumer, seq, last_seq, log_time_ms, expired <> 0, gone <> 0, crc, state "
    "FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s) "
    "AS new (cluster, consumer, seq, last_seq, log_time_ms, expired, gone, crc, state) "
    "ON CONFLICT (cluster, consumer) DO UPDATE SET seq = excluded.seq, last_seq = excluded.last_seq, "
    "log_time_ms = excluded.log_time_ms, expired = excluded.expired, gone = excluded.gone, crc = excluded.crc, "
    "state = excluded.state"
)
_SAVE_LOG_ENDS = (
    "INSERT INTO log_ends (cluster, topic, partition, touched_ms, samples) SELECT * FROM unnest(%s, %s, %s, %s, %s) "
    "ON CONFLICT (cluster, topic, partition) DO UPDATE SET touched_ms = excluded.touched_ms, samples = excluded.samples"
)
_ADD_COUNTERS = (
    "INSERT INTO counters (name, labels, value) SELECT * FROM unnest(%s::text[], %s::text[], %s::float8[]) "
    "ON CONFLICT (name, labels) DO UPDATE SET value = counters.value + excluded.value"
)
_ADD_REJECTS = (
    "INSERT INTO rejects (received_at_ms, code, detail, source, body) SELECT * FROM unnest(%s, %s, %s, %s, %s)"
)
_FORGET_REJECTS = f"DELETE FROM rejects WHERE id <= (SELECT max(id) FROM rejects) - {KEPT_REJECTS}"
_HEAR = (
    "INSERT INTO heard (cluster, at_ms) SELECT * FROM unnest(%s, %s) "
    "ON CONFLICT (cluster) DO UPDATE SET at_ms = excluded.at_ms"
)
_FORGET_CLUSTERS = (
    f"DELETE FROM heard WHERE cluster IN (SELECT cluster FROM heard ORDER BY at_ms DESC OFFSET {MOST_CLUSTERS})"
)
_SAVE_REPORTER = (
    "INSERT INTO reporters (name, log_id, seq, state) VALUES (%s, %s, %s, %s) "
    "ON CONFLICT (name) DO UPDATE SET log_id = excluded.log_id, seq = excluded.seq, state = excluded.state"
)
_REMEMBER = (
    "INSERT INTO notes (reporter, name, value) VALUES (%s, %s, %s) "
    "ON CONFLICT (reporter, name) DO UPDATE SET value = excluded.value"
)
_FORGET_GROUPS = (
    "DELETE FROM groups WHERE (cluster, consumer) IN (SELECT cluster, consumer FROM groups g WHERE (expired OR gone) "
    "AND NOT EXISTS (SELECT FROM unnest(%s, %s) AS used (cluster, consumer) "
    "WHERE used.cluster = g.cluster AND used.consumer = g.consumer) "
    f"ORDER BY log_time_ms LIMIT {EVICTED_AT_ONCE})"
)
_LOG_END_SIZE = f"length(samples) + 2 * (length(cluster) + length(topic)) + {ROW_BYTES}"
_FORGET_LEAST_RECENT = (
    "DELETE FROM log_ends WHERE ctid IN (SELECT ctid FROM log_ends ORDER BY touched_ms LIMIT 100) "
    f"RETURNING {_LOG_END_SIZE}"
)
_FORGET_BEFORE = (
    "DELETE FROM log_ends WHERE ctid IN (SELECT ctid FROM log_ends WHERE touched_ms < %s LIMIT 500) "
    f"RETURNING {_LOG_END_SIZE}"
)
_SETTLE = (
    "UPDATE log SET log_ms = %s, wall_ms = %s, first_seq = %s, last_seq = %s, groups = %s, log_end_bytes = %s, "
    "block = %s, block_bytes = %s, block_ms = %s"
)


class NotLeadingError(LogUnavailableError):
    """Another process leads. The write was refused, and nothing was stored."""


class LogRow(NamedTuple):
    """The row of ``log``, as `LOCK_LOG` returns it. ``now_ms`` is the database's clock."""

    log_id: str
    log_ms: int
    first_seq: int
    last_seq: int
    groups: int
    log_end_bytes: int
    block: int
    block_bytes: int
    block_ms: int
    leader: str | None
    now_ms: int


class PostgresTransaction(Transaction):
    """A transaction with the lock on ``log``. `settle` writes its rows. ``began_block`` is true if it began a block.

    ``groups`` are the rows of its events' groups, and ``log_ends`` those of the requested histories, ``asked``.
    """

    _forget_before = _FORGET_BEFORE
    _forget_least_recent = _FORGET_LEAST_RECENT

    def __init__(
        self,
        session: Session,
        log: LogRow,
        groups: Sequence[Row],
        asked: Collection[ClusterPartition],
        log_ends: Iterable[Row],
        *,
        log_end_histories: LogEndHistories,
        limits: Limits,
    ) -> None:
        super().__init__(
            log_end_histories,
            groups=log.groups,
            log_end_bytes=log.log_end_bytes,
            max_consumers=limits.max_consumers,
        )
        self.first_seq = log.first_seq
        self.last_seq = log.last_seq
        self.began_block = False
        self._session = session
        self._log = log
        self._limits = limits
        self._found = {(row[0], row[1]): row for row in groups}
        self._asked = asked
        self._found_log_ends = {
            ClusterPartition(cluster.decode(), topic.decode(), partition): samples
            for cluster, topic, partition, samples in log_ends
        }
        self._log_ends: dict[ClusterPartition, tuple[int, bytes]] = {}
        self._events: list[Row] = []
        self._saved: dict[GroupKey, GroupState] = {}
        self._reporters: dict[str, Row] = {}
        self._notes: dict[tuple[str, str], bytes] = {}

    def require_lead(self, token: str | None) -> None:
        """Refuse a write of the leader from a process that does not lead any more. Raises `NotLeadingError`."""
        if self._log.leader != token:
            raise NotLeadingError("another replica leads now")

    def save_reporter(self, state: ReporterState) -> None:
        self._reporters[state.name] = reporter_row(state)

    def remember(self, reporter: str, name: str, value: bytes) -> None:
        self._notes[reporter, name] = value

    def recall(self, reporter: str, name: str) -> bytes | None:
        sql = "SELECT value FROM notes WHERE reporter = %s AND name = %s"
        row = self._session.execute(sql, (reporter, name), binary=True).fetchone() or (None,)
        stored: bytes | None = row[0]
        return self._notes.get((reporter, name), stored)

    def expire(self, before_ms: int) -> int:
        sql = "UPDATE groups SET expired = true WHERE NOT expired AND NOT gone AND log_time_ms < %s"
        return self._session.execute(sql, (before_ms,)).rowcount

    def begin_at(self, first_seq: int) -> int:
        """Hide the events before ``first_seq`` from readers. Returns their number."""
        deleted = max(0, min(first_seq, self.last_seq + 1) - self.first_seq)
        if deleted:
            self.first_seq += deleted
            self.add(telemetry.LOG_PRUNED, deleted)
        return deleted

    def settle(self, pending: PendingWrites, log_ms: int) -> None:
        """Write the collected rows, the counters and rejects, and the log's own counts."""
        log, execute = self._log, self._session.execute
        if self._events:
            seqs, *columns = zip(*self._events, strict=True)
            previous, received, observed, log_time, source, crc, body, summary = columns
            numbers = map(Integers, (seqs, previous, received, observed, log_time))
            execute(_INSERT_EVENTS, (log.block, *numbers, Texts(source), Integers(crc), Texts(body), Texts(summary)))
        self._save_groups()
        if self._log_ends:
            touched, samples = zip(*self._log_ends.values(), strict=True)
            execute(_SAVE_LOG_ENDS, (*partition_columns(self._log_ends), Integers(touched), Texts(samples)))
        for reporter in self._reporters.values():
            execute(_SAVE_REPORTER, reporter)
        for (name, note), value in self._notes.items():
            execute(_REMEMBER, (name, note, value))
        self._add_counters(pending)
        if self.heard:
            execute(_HEAR, (Texts(map(str.encode, self.heard)), Integers(self.heard.values())))
            execute(_FORGET_CLUSTERS)
        block, block_bytes, block_ms = self._block(log_ms)
        counts = (self.first_seq, self.last_seq, self.groups, self.log_end_bytes)
        execute(_SETTLE, (log_ms, log.now_ms, *counts, block, block_bytes, block_ms))

    def find_log_end(self, key: ClusterPartition) -> tuple[Any, bytes] | None:
        if key in self._log_ends:
            return key, self._log_ends[key][1]
        if key not in self._asked:
            sql = "SELECT samples FROM log_ends WHERE cluster = %s AND topic = %s AND partition = %s"
            names = (key.cluster.encode(), key.topic.encode(), key.partition)
            row = self._session.execute(sql, names, binary=True).fetchone()
            return None if row is None else (key, row[0])
        return (key, self._found_log_ends[key]) if key in self._found_log_ends else None

    def save_log_end(self, key: ClusterPartition, _row_id: Any, touched_ms: int, samples: bytes) -> None:
        self._log_ends[key] = (touched_ms, samples)

    def _find_group(self, key: GroupKey) -> tuple[bool, GroupState | None]:
        if key in self._saved:
            return True, self._saved[key]
        found = self._found.get((key.cluster.encode(), key.consumer.encode()))
        return found is not None, None if found is None else group_of(found)

    def _insert_event(self, arrived: Arrival, previous: int | None) -> int:
        if not -_INTEGER_LIMIT <= arrived.event.observed_at_ms < _INTEGER_LIMIT:
            raise OverflowError(f"the time {arrived.event.observed_at_ms} does not fit into 64 bits")
        self.last_seq += 1
        before, received, observed, log_time, source, crc, body, summary = event_row(arrived, previous)
        self._events.append((self.last_seq, before, received, observed, log_time, source.encode(), crc, body, summary))
        return self.last_seq

    def _save_group(self, state: GroupState) -> None:
        self._saved[state.key] = state

    def _delete_forgettable(self) -> int:
        used = {*(GroupKey(cluster.decode(), consumer.decode()) for cluster, consumer in self._found), *self._saved}
        return self._session.execute(_FORGET_GROUPS, key_columns(used)).rowcount

    def _save_groups(self) -> None:
        if not self._saved:
            return
        columns = zip(*map(group_row, self._saved.values()), strict=True)
        _, _, seq, last_seq, log_time, expired, gone, crc, state = columns
        numbers = map(Integers, (seq, last_seq, log_time, expired, gone, crc))
        self._session.execute(_SAVE_GROUPS, (*key_columns(self._saved), *numbers, Texts(state)))

    def _add_counters(self, pending: PendingWrites) -> None:
        sums = Counter(pending.counts)
        sums.update(self.counts)
        if sums:
            names = [name for name, _ in sums]
            labels = [labels_text(labels) for _, labels in sums]
            self._session.execute(_ADD_COUNTERS, (names, labels, list(map(float, sums.values()))))
        if pending.rejects:
            texts = [
                Texts(text.encode("utf-8", "surrogatepass") for text in column)
                for column in zip(*((one.code, one.detail, one.source.value) for one in pending.rejects), strict=True)
            ]
            received = Integers(one.received_at_ms for one in pending.rejects)
            self._session.execute(_ADD_REJECTS, (received, *texts, Texts(one.body for one in pending.rejects)))
            self._session.execute(_FORGET_REJECTS)

    def _block(self, log_ms: int) -> tuple[int, int, int]:
        """The next commit's block, its bytes and its start time. A block ends when it is too large or too old."""
        size = self._log.block_bytes + sum(len(row[-2]) + len(row[-1]) + _ROW_OVERHEAD for row in self._events)
        is_full = size >= max(_LEAST_BLOCK_BYTES, self._limits.max_bytes // _BLOCKS)
        is_old = log_ms - self._log.block_ms >= max(1, self._limits.retention_ms // _BLOCKS)
        if not size or not (is_full or is_old):
            return self._log.block, size, self._log.block_ms
        for sql, parameters in new_block(self._log.block + 1, self.last_seq + 1):
            self._session.execute(sql, parameters)
        self.began_block = True
        return self._log.block + 1, 0, log_ms

    def _execute(self, sql: str, *parameters: int) -> Iterable[tuple[Any, ...]]:
        return self._session.execute(sql, parameters)


def key_columns(keys: Iterable[GroupKey]) -> tuple[Texts, Texts]:
    listed = list(keys)
    return Texts(key.cluster.encode() for key in listed), Texts(key.consumer.encode() for key in listed)


def partition_columns(keys: Iterable[ClusterPartition]) -> tuple[Texts, Texts, Integers]:
    listed = list(keys)
    clusters, topics = Texts(key.cluster.encode() for key in listed), Texts(key.topic.encode() for key in listed)
    return clusters, topics, Integers(key.partition for key in listed)
