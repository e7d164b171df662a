"""Writes groups of waiting writes to SQLite, each group in one transaction under ``commit.lock``.

With several writers, SQLite's own busy handler lets one of them starve (5 s measured). Before SQLite 3.51.3, two
connections that commit and checkpoint at the same time can corrupt a database. One lock for commits and checkpoints
prevents both.
"""

import contextlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import apsw
import structlog

from karrot import telemetry
from karrot.clock import Anchor
from karrot.event import ClusterPartition, GroupKey
from karrot.eventlog import rows
from karrot.eventlog.base import LogUnavailableError, ReporterState
from karrot.eventlog.group_state import Arrival, GroupRow
from karrot.eventlog.sqlite.connections import LogFile, MemoryFile
from karrot.eventlog.sqlite.database import GROUP_COLUMNS
from karrot.eventlog.transaction import (
    EVICTED_AT_ONCE,
    MOST_CLUSTERS,
    ROW_BYTES,
    LogEndHistories,
    LogEndTable,
    StoredHistory,
    Transaction,
)
from karrot.eventlog.writer import KEPT_REJECTS, Job, PendingWrites, Take, WriteBuffer, write_apart

_MOST_AT_ONCE = 64 << 20
"""More bytes than one transaction needs. A worker admits half of this in large bodies, plus a group of small ones."""

_PRUNED_AT_ONCE = 500
_ATTEMPTS = 50
"""How many times the oldest events are dropped before the newest are refused."""

FORGET = (
    "DELETE FROM groups WHERE (cluster, consumer) IN "
    f"(SELECT cluster, consumer FROM groups WHERE expired OR gone ORDER BY log_time_ms LIMIT {EVICTED_AT_ONCE})"
)
_ADD_COUNTER = "INSERT INTO counters VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value"
SIZE = f"length(samples) + 2 * (octet_length(cluster) + octet_length(topic)) + {ROW_BYTES}"
"""The bytes that a history takes in the table and in both indexes: the names are stored twice."""

_FORGET_LEAST_RECENT = (
    f"DELETE FROM log_ends WHERE rowid IN (SELECT rowid FROM log_ends ORDER BY touched_ms LIMIT 100) RETURNING {SIZE}"
)
_FORGET_BEFORE = (
    f"DELETE FROM log_ends WHERE rowid IN (SELECT rowid FROM log_ends WHERE touched_ms < ? LIMIT 500) RETURNING {SIZE}"
)

_UNSTORABLE = (
    *(apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError),
    *(TypeError, ValueError, OverflowError),
)
"""The errors that are about one row, not about the file."""

_log = structlog.get_logger(__name__)


class LogEndRows:
    """The table ``log_ends`` of an open transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def find(self, key: ClusterPartition) -> StoredHistory | None:
        sql = "SELECT rowid, samples FROM log_ends WHERE cluster = ? AND topic = ? AND partition = ?"
        found: Any = self._connection.execute(sql, key).fetchone()
        return None if found is None else StoredHistory(*found)

    def insert(self, key: ClusterPartition, touched_ms: int, samples: bytes) -> None:
        self._connection.execute("INSERT INTO log_ends VALUES (?, ?, ?, ?, ?)", (*key, touched_ms, samples))

    def update(self, row: StoredHistory, touched_ms: int, samples: bytes) -> None:
        self._connection.execute(
            "UPDATE log_ends SET touched_ms = ?, samples = ? WHERE rowid = ?", (touched_ms, samples, row.row_id)
        )


class SqliteTransaction(Transaction):
    """An open transaction. Create it after BEGIN and call `settle` before COMMIT."""

    def __init__(self, connection: apsw.Connection, log_end_histories: LogEndHistories, *, max_consumers: int) -> None:
        self._connection = connection
        self._events, groups, log_end_bytes = connection.execute("SELECT events, groups, log_end_bytes FROM log").get
        super().__init__(log_end_histories, groups=groups, log_end_bytes=log_end_bytes, max_consumers=max_consumers)
        self._log_end_rows = LogEndRows(connection)

    def save_reporter(self, state: ReporterState) -> None:
        self._connection.execute("INSERT OR REPLACE INTO reporters VALUES (?, ?, ?, ?)", rows.reporter_row(state))

    def remember(self, reporter: str, name: str, value: bytes) -> None:
        self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (reporter, name, value))

    def expire(self, before_ms: int) -> int:
        self._connection.execute(
            "UPDATE groups SET expired = 1 WHERE NOT expired AND NOT gone AND log_time_ms < ?", (before_ms,)
        )
        return self._connection.changes()

    def prune_older(self, before_ms: int) -> int:
        """Delete up to 500 of the events stored before ``before_ms``, oldest first. Returns how many."""
        oldest = self._connection.execute(f"SELECT seq, log_time_ms FROM events ORDER BY seq LIMIT {_PRUNED_AT_ONCE}")
        last = max((seq for seq, log_time_ms in oldest if log_time_ms < before_ms), default=0)
        return self._delete_up_to(last)

    def prune_oldest(self) -> int:
        """Delete the oldest twentieth of the events, at most 500. Returns how many."""
        some = max(1, min(_PRUNED_AT_ONCE, self._events // 20))
        last = self._connection.execute(
            "SELECT max(seq) FROM (SELECT seq FROM events ORDER BY seq LIMIT ?)", (some,)
        ).get
        return self._delete_up_to(last or 0)

    def settle(self, pending: PendingWrites, anchor: Anchor) -> None:
        """Write what every commit includes: counters, rejects, when each cluster was heard, and the log time."""
        for (name, labels), by in (*pending.counts.items(), *self.counts.items()):
            self._connection.execute(_ADD_COUNTER, (name, rows.labels_text(labels), by))
        if pending.rejects:
            for reject in pending.rejects:
                self._connection.execute(
                    "INSERT INTO rejects VALUES (NULL, ?, ?, ?, ?, ?)",
                    (reject.received_at_ms, reject.code, reject.detail, reject.source.value, reject.body),
                )
            newest = self._connection.last_insert_rowid()
            self._connection.execute("DELETE FROM rejects WHERE id <= ?", (newest - KEPT_REJECTS,))
        for cluster, at_ms in self.heard.items():
            self._hear(cluster, at_ms)
        self._connection.execute(
            "UPDATE log SET boot_id = ?, boot_ms = ?, wall_ms = ?, log_ms = ?, events = ?, groups = ?, "
            "log_end_bytes = ?",
            (*anchor, self._events, self.groups, self.log_end_bytes),
        )

    @property
    def _log_ends(self) -> LogEndTable:
        return self._log_end_rows

    def _find_group(self, key: GroupKey) -> tuple[bool, GroupRow | None]:
        found = self._connection.execute(
            f"SELECT {GROUP_COLUMNS} FROM groups WHERE cluster = ? AND consumer = ?", key
        ).fetchone()
        whole = None if found is None else rows.group_of(found)
        return found is not None, None if whole is None else whole[1]

    def _insert_event(self, arrived: Arrival, previous: int | None) -> int:
        self._connection.execute(
            "INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", rows.event_row(arrived, previous)
        )
        self._events += 1
        return self._connection.last_insert_rowid()

    def _save_group(self, key: GroupKey, row: GroupRow) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows.group_row(key, row)
        )

    def _delete_forgettable(self) -> int:
        self._connection.execute(FORGET)
        return self._connection.changes()

    def _delete_log_ends_before(self, before_ms: int) -> Iterable[tuple[Any, ...]]:
        return self._connection.execute(_FORGET_BEFORE, (before_ms,))

    def _delete_oldest_log_ends(self) -> Iterable[tuple[Any, ...]]:
        return self._connection.execute(_FORGET_LEAST_RECENT)

    def _hear(self, cluster: str, at_ms: int) -> None:
        self._connection.execute("UPDATE heard SET at_ms = ? WHERE cluster = ?", (at_ms, cluster))
        if self._connection.changes():
            return
        self._connection.execute("INSERT INTO heard VALUES (?, ?)", (cluster, at_ms))
        self._connection.execute(
            "DELETE FROM heard WHERE cluster IN (SELECT cluster FROM heard ORDER BY at_ms DESC LIMIT -1 OFFSET ?)",
            (MOST_CLUSTERS,),
        )

    def _delete_up_to(self, seq: int) -> int:
        self._connection.execute("DELETE FROM events WHERE seq <= ?", (seq,))
        deleted = self._connection.changes()
        self._events -= deleted
        if deleted:
            self.add(telemetry.LOG_PRUNED, deleted)
        return deleted


class SqliteCommitter:
    """Commits groups of jobs under a lock, for the writer. ``trouble`` is why the last commit failed, or ``None``."""

    def __init__(
        self,
        file: LogFile | MemoryFile,
        lock: AbstractContextManager[object],
        buffer: WriteBuffer,
        log_end_histories: LogEndHistories,
        *,
        max_consumers: int,
    ) -> None:
        self._file = file
        self._lock = lock
        self._buffer = buffer
        self._log_end_histories = log_end_histories
        self._log_id = file.log_id
        self._max_consumers = max_consumers
        self.trouble: str | None = None

    def commit(self, take: Take) -> None:
        """Run the jobs of ``take``, which is called as late as possible. Raises `LogUnavailableError`."""
        with self._lock:
            try:
                self._file.follow()
                try:
                    self._transact_or_repair(take)
                except _UNSTORABLE:
                    write_apart(take(), lambda jobs: self._transact_or_repair(lambda: jobs), _UNSTORABLE, self._buffer)
            except (apsw.Error, OSError) as error:
                raise self._refused(f"{type(error).__name__}: {error}") from error
            except LogUnavailableError as error:  # the file cannot be opened again, or a log in memory is damaged
                raise self._refused(str(error)) from error
            self.trouble = None

    def _refused(self, trouble: str) -> LogUnavailableError:
        self._file.distrust()
        self.trouble = trouble
        _log.warning("the event log refused a commit", code="commit_refused", reason=trouble)
        return LogUnavailableError(trouble)

    def _transact(self, take: Take) -> None:
        connection = self._file.connection
        pending = self._buffer.take()
        if self._log_id != self._file.log_id:
            self._log_id = self._file.log_id
            self._log_end_histories.forget()
        try:
            connection.execute("BEGIN IMMEDIATE")
            transaction = SqliteTransaction(connection, self._log_end_histories, max_consumers=self._max_consumers)
            jobs = take()
            for job in jobs:
                job.result = job.work(transaction)
            transaction.settle(pending, self._file.time.anchor())
            connection.execute("COMMIT")
        except BaseException:
            self._buffer.back(pending)
            self._log_end_histories.forget()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        for job in jobs:
            job.stored = True

    def _transact_or_repair(self, take: Take) -> None:
        try:
            self._transact(take)
        except apsw.FullError:
            # Dropping events helps only if the log reached its own limit. On a full volume it would lose them for
            # nothing.
            if not near_its_cap(self._file.connection):
                raise
            self._transact_with_room(take)
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._file.replace(str(error))
            self._transact(take)

    def _transact_with_room(self, take: Take) -> None:
        """Drop the oldest events until the new ones fit. Raises SQLite's error if they never fit."""
        for _ in range(_ATTEMPTS):
            self._transact(lambda: [Job(SqliteTransaction.prune_oldest)])
            with contextlib.suppress(apsw.FullError):
                return self._transact(take)
        return self._transact(take)


def used_bytes(connection: apsw.Connection) -> int:
    """The size of the pages in use, in bytes."""
    pages = connection.pragma("page_count") - connection.pragma("freelist_count")
    return int(pages * connection.pragma("page_size"))


def near_its_cap(connection: apsw.Connection) -> bool:
    """Whether a write may have failed because of ``max_bytes``. If not, the volume is full."""
    cap = connection.pragma("max_page_count") * connection.pragma("page_size")
    return bool(used_bytes(connection) > cap - min(_MOST_AT_ONCE, cap // 2))
