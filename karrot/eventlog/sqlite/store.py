"""Implements the event log on SQLite: in one file that all workers of a machine share, or in memory.

For a file, each worker has one writer thread and a few reading connections. Every transaction runs under
``commit.lock`` and is flushed to disk before any caller gets its result. Open the log after the fork: threads and
connections do not survive a fork.
"""

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import apsw

from karrot.clock import Clock
from karrot.event import GroupKey
from karrot.eventlog import rows
from karrot.eventlog.base import LogSize, LogUnavailableError, OverloadedError
from karrot.eventlog.locks import FileLock
from karrot.eventlog.sql_log import READ_BYTES, Limits, ReadConnection, SqlEventLog
from karrot.eventlog.sqlite.connections import Checkpointer, LogFile, MemoryFile
from karrot.eventlog.sqlite.database import EVENT_COLUMNS, GROUP_COLUMNS
from karrot.eventlog.sqlite.transaction import SqliteCommitter, SqliteTransaction, used_bytes
from karrot.eventlog.transaction import TOUCHED_MS, LogEndHistories
from karrot.eventlog.writer import InlineWriter, Writer

_NEARLY_FULL = 0.9
_OLDEST = "(SELECT log_time_ms FROM events ORDER BY seq LIMIT 1)"


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
        """None: the log is always read."""

    @property
    def replica(self) -> None:
        """None: only one machine can use the log."""

    def leader(self) -> None:
        """None: only one machine can use the log."""

    def database(self) -> None:
        """None: SQLite has no server."""

    def prune(self) -> int:
        """Delete events and log-end histories beyond the limits of age and size, some hundred in each transaction."""
        now_ms = self.log_time_ms()
        before_ms = now_ms - self._limits.retention_ms
        most_bytes = self._limits.max_bytes * _NEARLY_FULL

        def prune_until(work: Callable[[SqliteTransaction, int], int], rows_of: str, until_ms: int) -> int:
            sql = f"SELECT 1 FROM {rows_of} < ? LIMIT 1"
            return self._prune(
                lambda transaction: work(transaction, until_ms),
                lambda connection: connection.execute(sql, (until_ms,)).fetchone() is not None,
            )

        def log_end_bytes(connection: apsw.Connection) -> int:
            return int(connection.execute("SELECT log_end_bytes FROM log").get)

        prune_until(SqliteTransaction.forget_log_ends_before, "log_ends WHERE touched_ms", before_ms - TOUCHED_MS)
        with self._file.reading() as connection:
            too_large = log_end_bytes(connection) > self._limits.most_log_end_bytes
        if too_large:  # new histories never make it too large, so histories in use are not dropped again and again
            enough = self._limits.most_log_end_bytes * _NEARLY_FULL
            self._prune(SqliteTransaction.forget_oldest_log_ends, lambda connection: log_end_bytes(connection) > enough)
        return prune_until(SqliteTransaction.prune_older, f"{_OLDEST} WHERE log_time_ms", before_ms) + (
            self._prune(SqliteTransaction.prune_oldest, lambda connection: used_bytes(connection) > most_bytes)
        )

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

    def _page(self, connection: ReadConnection, after: int, limit: int) -> Iterable[rows.Row]:
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
            some = self._writer.submit(work) if is_wanted else 0
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
        """Commit the waiting writes and release everything. The last process to close merges the write-ahead log."""
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
