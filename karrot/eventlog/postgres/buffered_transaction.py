"""Writes the rows of one transaction to PostgreSQL together.

A commit needs two round trips, however many events it has: the first takes the lock and finds the groups and log-end
histories of the events, and the second writes everything.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from karrot import telemetry
from karrot.event import ClusterPartition, GroupKey
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.event_log import Limits
from karrot.eventlog.postgres.connections import Integers, Session, Texts
from karrot.eventlog.postgres.schema import NOW_MS, new_block
from karrot.eventlog.rows import EVENTS, GROUP_FIELDS, Row, Table
from karrot.eventlog.transaction_rules import LogEndHistories, Transaction
from karrot.eventlog.writer import PendingWrites

_BLOCKS = 16
"""The events fill about this many blocks. A block is dropped whole, so the log loses a sixteenth at once."""

_ROW_OVERHEAD = 120
"""The bytes of an event's row and of its entry in the index, in addition to its body."""

_LEAST_BLOCK_BYTES = 1 << 18
_EVENTS_IN_BLOCK = Table("events", f"block bigint, {EVENTS.columns}")
_COLUMNS = ", ".join(GROUP_FIELDS)

LOCK_LOG = (
    "SELECT log_id, log_ms, first_seq, last_seq, groups, log_end_bytes, block, block_bytes, block_ms, leader, "
    f"{NOW_MS} FROM log FOR UPDATE"
)
FIND_GROUPS = (
    f"SELECT {_COLUMNS} FROM groups JOIN unnest(%s, %s) AS wanted (cluster, consumer) USING (cluster, consumer)"
)
FIND_LOG_ENDS = (
    "SELECT cluster, topic, partition, samples FROM log_ends "
    "JOIN unnest(%s, %s, %s) AS wanted (cluster, topic, partition) USING (cluster, topic, partition)"
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
    """A transaction with the lock on ``log``. ``began_block`` is true if it began a block of events."""

    _group_columns = _COLUMNS

    def __init__(self, session: Session, log: LogRow, *, log_end_histories: LogEndHistories, limits: Limits) -> None:
        super().__init__(
            log_end_histories,
            last_seq=log.last_seq,
            groups=log.groups,
            log_end_bytes=log.log_end_bytes,
            max_consumers=limits.max_consumers,
        )
        self.first_seq = log.first_seq
        self.began_block = False
        self._session = session
        self._log = log
        self._limits = limits

    def require_lead(self, token: str | None) -> None:
        """Refuse a write of the leader from a process that does not lead any more. Raises `NotLeadingError`."""
        if self._log.leader != token:
            raise NotLeadingError("another replica leads now")

    def begin_at(self, first_seq: int) -> int:
        """Hide the events before ``first_seq`` from readers. Returns their number."""
        deleted = max(0, min(first_seq, self.last_seq + 1) - self.first_seq)
        if deleted:
            self.first_seq += deleted
            self.add(telemetry.LOG_PRUNED, deleted)
        return deleted

    def finish(self, pending: PendingWrites, log_ms: int) -> None:
        """Write the rows, then the log time and the log's own counts."""
        self.settle(pending)
        block = self._block(log_ms)
        counts = (self.first_seq, self.last_seq, self.groups, self.log_end_bytes)
        self._session.execute(_SETTLE, (log_ms, self._log.now_ms, *counts, *block))

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

    def _insert(self, table: Table, rows: Collection[Row]) -> None:
        if not rows:
            return
        if table is EVENTS:
            table, rows = _EVENTS_IN_BLOCK, [(self._log.block, *row) for row in rows]
        values = [column(each, one) for each, one in zip(table.types, zip(*rows, strict=True), strict=True)]
        self._session.execute(table.insert_arrays, values)

    def _execute(self, sql: str, *parameters: int | str) -> Iterable[Row]:
        values = [each.encode() if isinstance(each, str) else each for each in parameters]
        return self._session.execute(sql.replace("?", "%s"), values, binary=True)


def key_columns(keys: Iterable[GroupKey]) -> tuple[Any, ...]:
    clusters, consumers = zip(*keys, strict=True)
    return column("bytea", clusters), column("bytea", consumers)


def partition_columns(keys: Iterable[ClusterPartition]) -> tuple[Any, ...]:
    clusters, topics, partitions = zip(*keys, strict=True)
    return column("bytea", clusters), column("bytea", topics), column("bigint", partitions)


def column(kind: str, values: Sequence[Any]) -> list[Any]:
    """The values of a column as an array of PostgreSQL."""
    if kind == "bytea":
        return Texts(each.encode() if isinstance(each, str) else each for each in values)
    return Integers(values) if kind == "bigint" else list(values)
