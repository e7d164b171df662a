"""Implements the event log on SQLite: in one file that all workers of a machine share, or in memory.

For a file, each worker has one writer thread and a few reading connections. Every transaction runs under
``commit.lock`` and is flushed to disk before any caller gets its result. Open the log after the fork: threads and
connections do not survive a fork.

With several writers, SQLite's own busy handler lets one of them starve (5 s measured). Before SQLite 3.51.3, two
connections that commit and checkpoint at the same time can corrupt a database. One lock for commits and checkpoints
prevents both.
"""

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import apsw
import structlog

from karrot import telemetry
from karrot.clock import Anchor, Clock
from karrot.event import ClusterPartition, GroupKey
from karrot.eventlog.base import GroupState, LogSize, LogUnavailableError, OverloadedError, ReporterState
from karrot.eventlog.locks import FileLock
from karrot.eventlog.next_group_state import Arrival
from karrot.eventlog.sql_log import (
    NEARLY_FULL,
    READ_BYTES,
    Limits,
    ReadConnection,
    Row,
    SqlEventLog,
    event_row,
    group_of,
    group_row,
    labels_text,
    reporter_row,
)
from karrot.eventlog.sqlite.database import EVENT_COLUMNS, GROUP_COLUMNS, Checkpointer, LogFile, MemoryFile
from karrot.eventlog.transaction_rules import (
    EVICTED_AT_ONCE,
    MOST_CLUSTERS,
    ROW_BYTES,
    LogEndHistories,
    Transaction,
)
from karrot.eventlog.writer import (
    KEPT_REJECTS,
    InlineWriter,
    Job,
    PendingWrites,
    Take,
    WriteBuffer,
    Writer,
    write_apart,
)

_TOO_OLD = "SELECT 1 FROM (SELECT log_time_ms FROM events ORDER BY seq LIMIT 1) WHERE log_time_ms < ?"
_MOST_AT_ONCE = 64 << 20
"""One transaction needs fewer bytes. A worker admits half of this in large bodies, plus a group of small bodies."""

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
"""The errors that one row causes, not the file."""

_log = structlog.get_logger(__name__)


class SqliteTransaction(Transaction):
    """An open transaction. Create it after BEGIN and call `settle` before COMMIT."""

    _forget_before = _FORGET_BEFORE
    _forget_least_recent = _FORGET_LEAST_RECENT

    def __init__(self, connection: apsw.Connection, log_end_histories: LogEndHistories, *, max_consumers: int) -> None:
        self._connection = connection
        self._events, groups, log_end_bytes = connection.execute("SELECT events, groups, log_end_bytes FROM log").get
        super().__init__(log_end_histories, groups=groups, log_end_bytes=log_end_bytes, max_consumers=max_consumers)

    def save_reporter(self, state: ReporterState) -> None:
        self._connection.execute("INSERT OR REPLACE INTO reporters VALUES (?, ?, ?, ?)", reporter_row(state))

    def remember(self, reporter: str, name: str, value: bytes) -> None:
        self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (reporter, name, value))

    def recall(self, reporter: str, name: str) -> bytes | None:
        sql = "SELECT value FROM notes WHERE reporter = ? AND name = ?"
        value: bytes | None = self._connection.execute(sql, (reporter, name)).get
        return value

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
            self._connection.execute(_ADD_COUNTER, (name, labels_text(labels), by))
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

    def find_log_end(self, key: ClusterPartition) -> tuple[Any, bytes] | None:
        sql = "SELECT rowid, samples FROM log_ends WHERE cluster = ? AND topic = ? AND partition = ?"
        found: tuple[Any, bytes] | None = self._connection.execute(sql, key).fetchone()
        return found

    def save_log_end(self, key: ClusterPartition, row_id: Any, touched_ms: int, samples: bytes) -> None:
        if row_id is None:
            self._connection.execute("INSERT INTO log_ends VALUES (?, ?, ?, ?, ?)", (*key, touched_ms, samples))
        else:
            sql = "UPDATE log_ends SET touched_ms = ?, samples = ? WHERE rowid = ?"
            self._connection.execute(sql, (touched_ms, samples, row_id))

    def _find_group(self, key: GroupKey) -> tuple[bool, GroupState | None]:
        found = self._connection.execute(
            f"SELECT {GROUP_COLUMNS} FROM groups WHERE cluster = ? AND consumer = ?", key
        ).fetchone()
        return found is not None, None if found is None else group_of(found)

    def _insert_event(self, arrived: Arrival, previous: int | None) -> int:
        self._connection.execute(
            "INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, NULL, ?)", event_row(arrived, previous)
        )
        self._events += 1
        return self._connection.last_insert_rowid()

    def _save_group(self, state: GroupState) -> None:
        self._connection.execute("INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", group_row(state))

    def _delete_forgettable(self) -> int:
        self._connection.execute(FORGET)
        return self._connection.changes()

    def _execute(self, sql: str, *parameters: int) -> Iterable[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters)

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


class SqliteDatabaseLog(SqlEventLog):
    """The event log in an SQLite database. ``lock`` is held during each commit."""

    _event_columns = EVENT_COLUMNS
    _group_columns = GROUP_COLUMNS

    def __init__(
        self, clock: Clock, file: LogFile | MemoryFile, lock: AbstractContextManager[object], limits: Limits
    ) -> None:
        super().__init__(clock, limits)
        self._file = file
        histories = LogEndHistories(max_bytes=limits.most_log_end_bytes, retention_ms=limits.retention_ms)
        self._committer = SqliteCommitter(file, lock, self._buffer, histories, max_consumers=limits.max_consumers)

    @property
    def log_id(self) -> str:
        return self._file.log_id

    def log_time_ms(self) -> int:
        return self._file.time.now()

    def writable(self) -> str | None:
        return self._committer.trouble

    def memory_age_ms(self) -> None:
        """``None``: every read is from the log."""

    @property
    def replica(self) -> None:
        """``None``: only one machine can use the log."""

    def leader(self) -> None:
        """``None``: only one machine can use the log."""

    def database(self) -> None:
        """``None``: SQLite has no server."""

    def prune(self) -> int:
        before_ms = self.log_time_ms() - self._limits.retention_ms
        most_bytes = self._limits.max_bytes * NEARLY_FULL
        self._forget_log_ends(before_ms)
        return self._prune(
            lambda transaction: transaction.prune_older(before_ms),
            lambda connection: connection.execute(_TOO_OLD, (before_ms,)).get is not None,
        ) + self._prune(SqliteTransaction.prune_oldest, lambda connection: used_bytes(connection) > most_bytes)

    def size(self) -> LogSize:
        """The size of the log. ``bytes`` are the bytes in use in the file plus those of the write-ahead log."""
        with self._file.reading() as connection:
            events, groups = connection.execute("SELECT events, groups FROM log").get
            # Two subqueries: each reads one end of the table. One SELECT with min and max would scan the whole table.
            first, last = connection.execute("SELECT (SELECT min(seq) FROM events), (SELECT max(seq) FROM events)").get
            used = used_bytes(connection)
        wal = self._file.wal_bytes()
        return LogSize(events, used + wal, groups, first or 0, last or 0, wal)

    def _reading(self) -> AbstractContextManager[ReadConnection]:
        return self._file.reading()

    def _page(self, connection: ReadConnection, after: int, limit: int) -> Iterable[Row]:
        sql = f"SELECT {EVENT_COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        total = 0
        for row in connection.execute(sql, (after, limit)):
            yield row
            total += len(row[-1])
            if total >= READ_BYTES:
                return

    def _key(self, key: GroupKey) -> tuple[str, str]:
        return key

    def _prune(self, work: Callable[[SqliteTransaction], int], wanted: Callable[[apsw.Connection], bool]) -> int:
        deleted = 0
        while True:
            with self._file.reading() as connection:
                is_wanted = wanted(connection)
            some = self._lead_writes(work) if is_wanted else 0
            if some == 0:
                return deleted
            deleted += some


class SqliteEventLog(SqliteDatabaseLog):
    """The event log in a prepared directory, within `Limits`. A write waits at most ``patience_s``."""

    _writer: Writer

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        patience_s: float = 2.0,
        **bounds: int,
    ) -> None:
        limits = Limits(**bounds)
        self._commit_lock = FileLock(directory / "commit.lock")
        self._leader_lock = FileLock(directory / "leader.lock")
        with self._commit_lock:
            file = LogFile(directory, clock, max_bytes=limits.max_bytes)
        super().__init__(clock, file, self._commit_lock, limits)
        self._writer = Writer(
            self._committer.commit,
            afterwards=Checkpointer(file, self._commit_lock).run,
            idle_work=lambda: bool(self._buffer),
            patience_s=patience_s,
        )

    def lead(self) -> bool:
        return self._leader_lock.try_acquire()

    def leads(self) -> bool:
        return self._leader_lock.held

    def resign(self) -> None:
        if self._leader_lock.held:
            self._leader_lock.release()

    def close(self) -> None:
        with contextlib.suppress(LogUnavailableError, OverloadedError):
            self.flush()
        self._writer.stop()
        self.resign()
        with self._commit_lock:
            self._file.close()
        self._commit_lock.close()
        self._leader_lock.close()


class MemoryEventLog(SqliteDatabaseLog):
    """The event log in memory, within `Limits`. It has no thread and no file, and you need not close it."""

    def __init__(self, clock: Clock, **bounds: int) -> None:
        limits = Limits(**bounds)
        file = MemoryFile(clock, max_bytes=limits.max_bytes)
        super().__init__(clock, file, file.lock, limits)
        self._writer = InlineWriter(self._committer.commit)

    def lead(self) -> bool:
        return True

    def leads(self) -> bool:
        return True

    def resign(self) -> None:
        """Do nothing, because there is no other process."""

    def close(self) -> None:
        self._file.close()


def used_bytes(connection: apsw.Connection) -> int:
    """The size of the pages in use, in bytes."""
    pages = connection.pragma("page_count") - connection.pragma("freelist_count")
    return int(pages * connection.pragma("page_size"))


def near_its_cap(connection: apsw.Connection) -> bool:
    """Whether a write may have failed because of ``max_bytes``. If not, the volume is full."""
    cap = connection.pragma("max_page_count") * connection.pragma("page_size")
    return bool(used_bytes(connection) > cap - min(_MOST_AT_ONCE, cap // 2))
