"""Implements the event log on SQLite: in one file that all workers of a machine share, or in memory.

For a file, each worker has one writer thread and a few reading connections. Every transaction runs under
``commit.lock`` and is flushed to disk before any caller gets its result. Open the log after the fork: threads and
connections do not survive a fork.

With several writers, SQLite's own busy handler lets one of them starve (5 s measured). Before SQLite 3.51.3, two
connections that commit and checkpoint at the same time can corrupt a database. One lock for commits and checkpoints
prevents both.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from karrot import telemetry
from karrot.clock import Anchor, Clock
from karrot.event import GroupKey
from karrot.eventlog.base import Limits, LogSize, LogUnavailableError, OverloadedError
from karrot.eventlog.event_log import NEARLY_FULL, READ_BYTES, EventLog
from karrot.eventlog.locks import FileLock
from karrot.eventlog.rows import Row, Table
from karrot.eventlog.sqlite.database import DAMAGE, EVENT_COLUMNS, GROUP_COLUMNS, Checkpointer, LogFile, MemoryFile
from karrot.eventlog.transaction_rules import Committer, LogEndHistories, Transaction, run
from karrot.eventlog.writer import InlineWriter, Job, PendingWrites, Take, WriteBuffer, Writer

_TOO_OLD = "SELECT 1 FROM (SELECT log_time_ms FROM events ORDER BY seq LIMIT 1) WHERE log_time_ms < ?"
_MOST_AT_ONCE = 64 << 20
"""One transaction needs fewer bytes. A worker admits half of this in large bodies, plus a group of small bodies."""

_PRUNED_AT_ONCE = 500
_ATTEMPTS = 50
"""How many times the oldest events are dropped before the newest are refused."""

_COUNTS = """
SELECT events, log_id, max(
    (SELECT coalesce(max(seq), 0) FROM events),
    (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events') -- the last event, even if it is deleted
), groups, log_end_bytes FROM log
"""


class SqliteTransaction(Transaction):
    """An open transaction of SQLite."""

    _group_columns = GROUP_COLUMNS

    def __init__(self, connection: apsw.Connection, limits: Limits, log_end_histories: LogEndHistories) -> None:
        self._connection = connection
        self._stored, self.log_id, *counts = connection.execute(_COUNTS).get
        super().__init__(limits, log_end_histories, *counts)

    def prune_older(self, before_ms: int) -> int:
        """Delete up to 500 of the events stored before ``before_ms``, oldest first. Returns how many."""
        oldest = self._connection.execute(f"SELECT seq, log_time_ms FROM events ORDER BY seq LIMIT {_PRUNED_AT_ONCE}")
        last = max((seq for seq, log_time_ms in oldest if log_time_ms < before_ms), default=0)
        return self._delete_up_to(last)

    def prune_oldest(self) -> int:
        """Delete the oldest twentieth of the events, at most 500. Returns how many."""
        some = max(1, min(_PRUNED_AT_ONCE, self._stored // 20))
        last = self._connection.execute(
            "SELECT max(seq) FROM (SELECT seq FROM events ORDER BY seq LIMIT ?)", (some,)
        ).get
        return self._delete_up_to(last or 0)

    def finish(self, pending: PendingWrites, anchor: Anchor) -> None:
        """Write the rows, then the log time and the log's own counts."""
        events = self._stored + len(self._events)
        self.settle(pending)
        self._connection.execute(
            "UPDATE log SET boot_id = ?, boot_ms = ?, wall_ms = ?, log_ms = ?, events = ?, groups = ?, "
            "log_end_bytes = ?",
            (*anchor, events, self.groups, self.log_end_bytes),
        )

    def _insert(self, table: Table, rows: Collection[Row]) -> None:
        self._connection.executemany(table.insert_values, rows)

    def _execute(self, sql: str, *parameters: int | str) -> Iterable[Row]:
        return self._connection.execute(sql, parameters)

    def _delete_up_to(self, seq: int) -> int:
        self._connection.execute("DELETE FROM events WHERE seq <= ?", (seq,))
        deleted = self._connection.changes()
        self._stored -= deleted
        if deleted:
            self.add(telemetry.LOG_PRUNED, deleted)
        return deleted


class SqliteCommitter(Committer):
    """Commits groups of jobs under a lock."""

    _unstorable = (
        *(apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError),
        *(TypeError, ValueError, OverflowError),
    )

    def __init__(
        self, file: LogFile | MemoryFile, lock: AbstractContextManager[object], buffer: WriteBuffer, limits: Limits
    ) -> None:
        super().__init__(buffer, limits, file.log_id)
        self._file = file
        self._lock = lock

    @contextlib.contextmanager
    def _ready(self) -> Iterator[None]:
        with self._lock:
            try:
                self._file.follow()
                yield
            except (apsw.Error, OSError) as error:
                self._file.distrust(error)
                raise LogUnavailableError(f"{type(error).__name__}: {error}") from error
            except LogUnavailableError as error:  # the file cannot be opened again, or a log in memory is damaged
                self._file.distrust(error)
                raise

    def _write(self, take: Take, pending: PendingWrites) -> Sequence[Job[Any]]:
        connection = self._file.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            transaction = SqliteTransaction(connection, self._limits, self._log_end_histories)
            if self._file.is_reopened:  # the file can be an older copy
                transaction.begin_id()
            self._follow(transaction)
            jobs = take()  # as late as possible
            run(jobs, transaction)
            transaction.finish(pending, self._file.time.anchor())
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._file.is_reopened = False
        self._committed(transaction)
        return jobs

    def _transact(self, take: Take) -> None:
        try:
            super()._transact(take)
        except apsw.FullError:
            # Dropping events helps only if the log reached its own limit. On a full volume it would lose them for
            # nothing.
            if not near_its_cap(self._file.connection):
                raise
            self._transact_with_room(take)
        except DAMAGE:
            self._file.replace()
            super()._transact(take)

    def _transact_with_room(self, take: Take) -> None:
        """Drop the oldest events until the new ones fit. Raises SQLite's error if they never fit."""
        for _ in range(_ATTEMPTS):
            super()._transact(lambda: [Job(SqliteTransaction.prune_oldest)])
            with contextlib.suppress(apsw.FullError):
                return super()._transact(take)
        return super()._transact(take)


class SqliteDatabaseLog(EventLog):
    """The event log in an SQLite database. ``lock`` is held during each commit."""

    _event_columns = EVENT_COLUMNS
    _group_columns = GROUP_COLUMNS

    def __init__(
        self, clock: Clock, file: LogFile | MemoryFile, lock: AbstractContextManager[object], limits: Limits
    ) -> None:
        super().__init__(clock, limits)
        self._file = file
        self._committer = SqliteCommitter(file, lock, self._buffer, limits)

    @property
    def log_id(self) -> str:
        return self._committer.log_id

    def log_time_ms(self) -> int:
        return self._file.time.now()

    def prune(self) -> int:
        before_ms = self.log_time_ms() - self._limits.retention_ms
        most_bytes = self._limits.max_bytes * NEARLY_FULL
        self._forget_log_ends(before_ms)
        deleted, some = 0, 1
        while some:
            with self._file.reading() as connection:
                is_old = connection.execute(_TOO_OLD, (before_ms,)).get is not None
                is_wanted = is_old or used_bytes(connection) > most_bytes
            work = partial(SqliteTransaction.prune_older, before_ms=before_ms)
            some = self._lead_writes(work if is_old else SqliteTransaction.prune_oldest) if is_wanted else 0
            deleted += some
        return deleted

    def size(self) -> LogSize:
        """The size of the log. ``bytes`` are the bytes in use in the file plus those of the write-ahead log."""
        with self._file.reading() as connection:
            events, groups = connection.execute("SELECT events, groups FROM log").get
            # Two subqueries: each reads one end of the table. One SELECT with min and max would scan the whole table.
            first, last = connection.execute("SELECT (SELECT min(seq) FROM events), (SELECT max(seq) FROM events)").get
            used = used_bytes(connection)
            wal = self._file.wal_bytes()
        return LogSize(events, used + wal, groups, first or 0, last or 0, wal)

    def _reading(self) -> AbstractContextManager[apsw.Connection]:
        return self._file.reading()

    def _page(self, connection: apsw.Connection, after: int, limit: int) -> Iterable[Row]:
        sql = f"SELECT {EVENT_COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        total = 0
        for row in connection.execute(sql, (after, limit)):
            yield row
            total += len(row[-1])
            if total >= READ_BYTES:
                return

    def _key(self, key: GroupKey) -> tuple[str, str]:
        return key


class SqliteEventLog(SqliteDatabaseLog):
    """The event log in a prepared directory, within `Limits`. A write waits at most ``patience_s``.

    ``failure`` is why `data_directory.prepare` could not write.
    """

    _writer: Writer

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        patience_s: float = 2.0,
        failure: str | None = None,
        **bounds: int,
    ) -> None:
        limits = Limits(**bounds)
        self._commit_lock = FileLock(directory / "commit.lock")
        self._leader_lock = FileLock(directory / "leader.lock")
        with self._commit_lock:
            file = LogFile(directory, clock, max_bytes=limits.max_bytes)
        file.is_reopened = failure is not None
        super().__init__(clock, file, self._commit_lock, limits)
        self._committer.failure = failure
        self._writer = Writer(
            self._committer.commit,
            afterwards=Checkpointer(file, self._commit_lock).run,
            idle_work=self._has_idle_work,
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
