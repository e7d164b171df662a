"""Implements the event log on SQLite: in one file that all workers of a machine share, or in memory.

For a file, each worker has one writer thread and a few reading connections. Every transaction runs under
``commit.lock`` and is flushed to disk before any caller gets its result. Open the log after the fork: threads and
connections do not survive a fork.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

import apsw

from karrot.clock import Clock
from karrot.event import GroupKey, LagEvent
from karrot.eventlog.base import (
    READ_LIMIT,
    Appended,
    Changed,
    Counter,
    Cursor,
    Damaged,
    GroupState,
    LogSize,
    LogUnavailableError,
    OverloadedError,
    Pace,
    Reject,
    ReporterState,
    StoredBody,
    StoredEvent,
)
from karrot.eventlog.group_state import LiveGroups, arrival, changed, state_of
from karrot.eventlog.locks import FileLock
from karrot.eventlog.sqlite import rows
from karrot.eventlog.sqlite.connections import Checkpointer, LogFile, MemoryFile
from karrot.eventlog.sqlite.database import used_bytes
from karrot.eventlog.sqlite.log_end_histories import TOUCHED_MS, LogEndHistories
from karrot.eventlog.sqlite.transaction import Transaction
from karrot.eventlog.sqlite.writer import Committer, InlineWriter, Job, Writer
from karrot.eventlog.write_buffer import HighWater, WriteBuffer

_READ_BYTES = 8 << 20
_UNREAD_BYTES = 1 << 20
_NEARLY_FULL = 0.9
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


class ChosenLimits(TypedDict, total=False):
    """The limits that a caller chooses: the fields of `Limits`."""

    stale_after_ms: int
    retention_ms: int
    max_bytes: int
    max_consumers: int
    log_end_max_bytes: int


class SqlEventLog:
    """Implements the `EventLog` protocol on a database, except the lead. Subclasses set the writer.

    ``lock`` is held during each commit.
    """

    _writer: Writer | InlineWriter

    def __init__(
        self,
        clock: Clock,
        file: LogFile | MemoryFile,
        lock: AbstractContextManager[object],
        limits: Limits,
    ) -> None:
        self._clock = clock
        self._file = file
        self._limits = limits
        self._buffer = WriteBuffer()
        self._high_water = HighWater()
        self._live = LiveGroups(self, stale_after_ms=limits.stale_after_ms)
        self._log_end_max_bytes = min(limits.log_end_max_bytes, limits.max_bytes // 4)
        histories = LogEndHistories(max_bytes=self._log_end_max_bytes, retention_ms=limits.retention_ms)
        self._committer = Committer(file, lock, self._buffer, histories, max_consumers=limits.max_consumers)

    @property
    def log_id(self) -> str:
        """The random id of the log that this process writes to now. It changes when a damaged file is replaced."""
        return self._file.log_id

    def append(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> Appended:
        """Store an event durably and update its group."""
        return self.begin(event, body, age_ms=age_ms).wait()

    def begin(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> Job[Appended]:
        """Hand an event to the writer."""
        arrived = arrival(
            event, body, received_at_ms=self._clock.wall_ms(), log_time_ms=self.log_time_ms(), age_ms=age_ms
        )
        return self._writer.begin(lambda transaction: transaction.append(arrived))

    def read(self, after: int, limit: int = READ_LIMIT) -> Sequence[StoredEvent | Damaged]:
        """The events after ``after``, oldest first; fewer than ``limit`` if they are large."""
        sql = f"SELECT {rows.EVENT_COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        with self._file.reading() as connection:
            log_id = self.log_id
            found = list(_bounded(connection.execute(sql, (after, min(limit, READ_LIMIT)))))
        return [rows.stored_event(log_id, row) for row in found]

    def recent(self, key: GroupKey, limit: int = 50) -> Sequence[StoredEvent]:
        """The newest events of one group, newest first. Each row has the number of the group's previous event."""
        return self._whole(self._chain(key, limit))

    def bodies(self, key: GroupKey, limit: int = 50, after: int = 0) -> Sequence[StoredBody]:
        """The newest events of a group after ``after``, not decoded."""
        found = (rows.stored_body(row) for row in self._chain(key, limit, after, _UNREAD_BYTES))
        return [each for each in found if each is not None]

    def _chain(self, key: GroupKey, limit: int, after: int = 0, most_bytes: int = sys.maxsize) -> list[rows.Row]:
        sql = f"SELECT {rows.EVENT_COLUMNS}, previous FROM events WHERE seq = ?"
        found: list[rows.Row] = []
        with self._file.reading() as connection:
            seq = connection.execute("SELECT last_seq FROM groups WHERE cluster = ? AND consumer = ?", key).get
            while seq is not None and seq > after and len(found) < min(limit, READ_LIMIT) and most_bytes > 0:
                row = connection.execute(sql, (seq,)).fetchone()
                if row is None:
                    break
                found.append(row[:-1])
                most_bytes -= len(row[-2])
                seq = row[-1]
        return found

    def event(self, seq: int) -> StoredEvent | None:
        """One event, if it is still stored and not damaged."""
        with self._file.reading() as connection:
            row = connection.execute(f"SELECT {rows.EVENT_COLUMNS} FROM events WHERE seq = ?", (seq,)).fetchone()
        return next(iter(self._whole([row] if row else [])), None)

    def latest(self, after: GroupKey | None = None, limit: int = READ_LIMIT) -> Sequence[GroupState]:
        """A page of live groups, ordered by key. A group whose row is damaged is left out until its next event."""
        beyond = ">=" if after is None else ">"
        sql = (
            f"SELECT {rows.GROUP_COLUMNS} FROM groups WHERE (cluster, consumer) {beyond} (?, ?) "
            "AND log_time_ms >= ? AND NOT gone ORDER BY cluster, consumer LIMIT ?"
        )
        page: list[GroupState] = []
        with self._file.reading() as connection:
            found = connection.execute(sql, (*(after or _FIRST), self._oldest_live(), min(limit, READ_LIMIT)))
            page.extend(state_of(*whole) for row in found if (whole := rows.group_of(row)))
        return page

    def changed(self, after: int, limit: int = READ_LIMIT) -> Sequence[Changed]:
        """A page of the groups whose last event is after ``after``."""
        sql = f"SELECT {rows.GROUP_COLUMNS} FROM groups WHERE last_seq > ? ORDER BY last_seq LIMIT ?"
        with self._file.reading() as connection:
            found = connection.execute(sql, (after, min(limit, READ_LIMIT)))
            return [changed(*whole) for row in found if (whole := rows.group_of(row))]

    def live(self, pace: Pace | None = None) -> Sequence[GroupState]:
        """Every live group, from memory."""
        return self._live.read(pace)

    def group(self, key: GroupKey) -> GroupState | None:
        """One live group."""
        sql = (
            f"SELECT {rows.GROUP_COLUMNS} FROM groups "
            "WHERE cluster = ? AND consumer = ? AND log_time_ms >= ? AND NOT gone"
        )
        with self._file.reading() as connection:
            row = connection.execute(sql, (*key, self._oldest_live())).fetchone()
        whole = None if row is None else rows.group_of(row)
        return None if whole is None else state_of(*whole)

    def heard(self) -> Mapping[str, int]:
        """When each cluster last sent a webhook."""
        with self._file.reading() as connection:
            found = connection.execute("SELECT cluster, at_ms FROM heard").fetchall()
        return {str(cluster): int(at_ms) for cluster, at_ms in found}  # type: ignore[arg-type]

    def cursor(self, reporter: str) -> Cursor | None:
        """A reporter's cursor; ``None`` if it has none, or if its cursor belongs to a log that was replaced."""
        with self._file.reading() as connection:
            row = connection.execute("SELECT log_id, seq FROM reporters WHERE name = ?", (reporter,)).fetchone()
        return None if row is None or row[0] != self.log_id else Cursor(*row)

    def save_reporter(self, state: ReporterState) -> None:
        """Save a reporter's cursor and state."""
        self._writer.submit(lambda transaction: transaction.save_reporter(state))

    def reporters(self) -> Sequence[ReporterState]:
        """The saved state of every reporter, ordered by name."""
        with self._file.reading() as connection:
            found = connection.execute("SELECT name, log_id, seq, state FROM reporters ORDER BY name").fetchall()
        return [rows.reporter_of(row) for row in found]

    def recall(self, reporter: str, name: str) -> bytes | None:
        """The value that a reporter saved under a name."""
        with self._file.reading() as connection:
            note = "SELECT value FROM notes WHERE reporter = ? AND name = ?"
            found: bytes | None = connection.execute(note, (reporter, name)).get
        return found

    def remember(self, reporter: str, name: str, value: bytes) -> None:
        """Save a reporter's value."""
        self._writer.submit(lambda transaction: transaction.remember(reporter, name, value))

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a shared counter, with the next commit."""
        self._buffer.count(name, by, labels)

    def counters(self) -> Sequence[Counter]:
        """Every shared counter, including increments that this process has not committed yet."""
        with self._file.reading() as connection:
            kept = connection.execute("SELECT name, labels, value FROM counters").fetchall()
        sums = {(name, labels): value for name, labels, value in map(rows.counter_of, kept)}
        for name, labels, value in self._buffer.counters():
            sums[name, labels] = sums.get((name, labels), 0) + value
        shown = self._high_water.raised(self.log_id, sums)
        return [Counter(name, labels, value) for (name, labels), value in sorted(shown.items())]

    def reject(self, reject: Reject) -> None:
        """Keep a refused body, with the next commit."""
        self._buffer.reject(reject)

    def rejects(self, limit: int = 50) -> Sequence[Reject]:
        """The newest refused bodies: first those not committed by this process yet, then those in the file."""
        waiting = self._buffer.rejects()[::-1][:limit]
        sql = "SELECT received_at_ms, code, detail, source, body FROM rejects ORDER BY id DESC LIMIT ?"
        with self._file.reading() as connection:
            kept = connection.execute(sql, (limit - len(waiting),)).fetchall()
        return [*waiting, *map(rows.reject_of, kept)]

    def expire(self) -> int:
        """Mark and count the groups that became silent."""
        before_ms = self._oldest_live()
        sql = "SELECT 1 FROM groups WHERE NOT expired AND NOT gone AND log_time_ms < ? LIMIT 1"
        with self._file.reading() as connection:
            if connection.execute(sql, (before_ms,)).fetchone() is None:
                return 0
        return self._writer.submit(lambda transaction: transaction.expire(before_ms))

    def prune(self) -> int:
        """Delete events and log-end histories beyond the limits of age and size, some hundred in each transaction."""
        before_ms = self.log_time_ms() - self._limits.retention_ms
        most_bytes = self._limits.max_bytes * _NEARLY_FULL

        def has_older(connection: apsw.Connection) -> bool:
            oldest = connection.execute("SELECT log_time_ms FROM events ORDER BY seq LIMIT 1").fetchone()
            return oldest is not None and oldest[0] < before_ms

        def has_forgotten(connection: apsw.Connection) -> bool:
            sql = "SELECT 1 FROM log_ends WHERE touched_ms < ? LIMIT 1"
            return connection.execute(sql, (before_ms - TOUCHED_MS,)).fetchone() is not None

        def log_end_bytes(connection: apsw.Connection) -> int:
            return int(connection.execute("SELECT log_end_bytes FROM log").get)

        self._prune(lambda transaction: transaction.forget_log_ends_before(before_ms - TOUCHED_MS), has_forgotten)
        with self._file.reading() as connection:
            too_large = log_end_bytes(connection) > self._log_end_max_bytes
        if too_large:  # new histories never make it too large, so histories in use are not dropped again and again
            enough = self._log_end_max_bytes * _NEARLY_FULL
            self._prune(Transaction.forget_oldest_log_ends, lambda connection: log_end_bytes(connection) > enough)
        return self._prune(lambda transaction: transaction.prune_older(before_ms), has_older) + (
            self._prune(Transaction.prune_oldest, lambda connection: used_bytes(connection) > most_bytes)
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

    def log_time_ms(self) -> int:
        """The log's own time."""
        return self._file.time.now()

    def writable(self) -> str | None:
        """The reason why the last commit of this process failed; ``None`` if it succeeded."""
        return self._committer.trouble

    def flush(self) -> None:
        """Commit the counters and rejects that are still in memory."""
        self._writer.submit(lambda _transaction: None)

    def _oldest_live(self) -> int:
        return self.log_time_ms() - self._limits.stale_after_ms

    def _whole(self, found: Sequence[rows.Row]) -> list[StoredEvent]:
        events = (rows.stored_event(self.log_id, row) for row in found)
        return [event for event in events if isinstance(event, StoredEvent)]

    def _prune(self, work: Callable[[Transaction], int], wanted: Callable[[apsw.Connection], bool]) -> int:
        deleted = 0
        while True:
            with self._file.reading() as connection:
                is_wanted = wanted(connection)
            some = self._writer.submit(work) if is_wanted else 0
            if some == 0:
                return deleted
            deleted += some


class SqliteEventLog(SqlEventLog):
    """The event log in a prepared directory. ``bounds`` are those of `Limits`.

    A write waits at most ``patience_s``. The wait until a commit takes the write is at most the share `TURN_SHARE` of
    that.
    """

    _writer: Writer

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        patience_s: float = 2.0,
        on_replaced: Callable[[Path, str], None] = lambda _path, _reason: None,
        **bounds: Unpack[ChosenLimits],
    ) -> None:
        limits = Limits(**bounds)
        self._commit_lock = FileLock(directory / "commit.lock")
        self._leader_lock = FileLock(directory / "leader.lock")
        with self._commit_lock:
            file = LogFile(directory, clock, max_bytes=limits.max_bytes, on_replaced=on_replaced)
        super().__init__(clock, file, self._commit_lock, limits)
        self._writer = Writer(
            self._committer.commit,
            afterwards=Checkpointer(file, self._commit_lock).run,
            idle_work=lambda: bool(self._buffer),
            patience_s=patience_s,
        )

    def lead(self) -> bool:
        """Take ``leader.lock`` if it is free. Returns whether this process holds it."""
        return self._leader_lock.try_acquire()

    def resign(self) -> None:
        """Let another worker lead."""
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


def _bounded(found: Iterator[rows.Row]) -> Iterator[rows.Row]:
    """Rows until their bodies together reach `_READ_BYTES`; at least one row."""
    total = 0
    for row in found:
        yield row
        total += len(row[-1])
        if total >= _READ_BYTES:
            return
