"""Reads the rows of a log in SQLite as they are, and writes the rows of another log to a new file.

The new file has another name until the copy is finished. So no Karrot, of whatever version, can use an unfinished copy.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from karrot.clock import Anchor, Clock, LogTime
from karrot.eventlog.base import READ_LIMIT, LogUnavailableError
from karrot.eventlog.copied_tables import EVENTS, ColumnKind, CopiedTable, LogHead, taken_target
from karrot.eventlog.locks import FileLock, flush
from karrot.eventlog.rows import Row
from karrot.eventlog.sql_log import READ_BYTES
from karrot.eventlog.sqlite import database, datadir
from karrot.eventlog.sqlite.transaction import SIZE

_LOCK_WAIT_S = 5.0
_PORTION = 1000
_NO_LIMIT = 1 << 46
"""The copy is as large as the source. The service deletes the oldest events later if they are too many for it."""

_BODY = list(EVENTS.columns).index("body")
_TEXTS = (ColumnKind.NAME, ColumnKind.TEXT)
_READ_AS = {ColumnKind.INTEGER: "INTEGER", ColumnKind.FLAG: "INTEGER", ColumnKind.REAL: "REAL"}
_EMPTY = "choose an empty directory"
_HEAD = (
    "SELECT log_id, (SELECT min(seq) FROM events), (SELECT seq FROM sqlite_sequence WHERE name = 'events'), groups, "
    "log_end_bytes, log_ms, boot_id, boot_ms, wall_ms FROM log"
)


class SqliteCopySource:
    """The log in a data directory. With ``lock``, no Karrot can use the directory until `close`."""

    def __init__(self, directory: Path, clock: Clock, lock: FileLock | None) -> None:
        self._place = f"the event log in {directory}"
        self._clock = clock
        self._lock = lock
        with _stated(self._place):
            self._connection = database.connect_reader(directory / datadir.DATABASE)
            _refuse_unusable(self._connection, self._place)

    @classmethod
    def open(cls, directory: Path, clock: Clock, *, in_use: str | None) -> "SqliteCopySource":
        """Open the log. ``in_use`` is what to do while a Karrot uses the log; ``None`` reads it nevertheless."""
        if not (directory / datadir.DATABASE).is_file():
            raise LogUnavailableError(f"there is no event log in {directory}: it has no file {datadir.DATABASE}")
        if in_use is None:
            return cls(directory, clock, None)
        lock = _locked(directory, in_use)
        try:
            return cls(directory, clock, lock)
        except BaseException:
            lock.close()
            raise

    def head(self) -> LogHead:
        """What the log knows about itself now."""
        with _stated(self._place):
            return _head(self._connection, self._clock)

    def events(self, after: int, limit: int = READ_LIMIT) -> Sequence[Row]:
        """The rows of `EVENTS` after a sequence number. A read is short, because it keeps the write-ahead log long."""
        sql = f"SELECT {_columns(EVENTS)} FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        found: list[Row] = []
        total = 0
        with _stated(self._place):
            for row in self._connection.execute(sql, (after, limit)):
                found.append(row)
                total += len(row[_BODY] or b"")
                if total >= READ_BYTES:
                    break
        return found

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within the block, every read sees the log at one moment."""
        with _stated(self._place):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("ROLLBACK")

    def rows(self, table: CopiedTable) -> Iterator[Sequence[Row]]:
        """All rows of a table, in portions."""
        with _stated(self._place):
            found = self._connection.execute(f"SELECT {_columns(table)} FROM {table.name} ORDER BY {table.order}")
            while portion := list(islice(found, _PORTION)):
                yield portion

    def close(self) -> None:
        """Release the log."""
        self._connection.close()
        if self._lock is not None:
            self._lock.close()


class SqliteCopyTarget:
    """A data directory for a log. No Karrot can use the directory until `close`."""

    def __init__(self, directory: Path, clock: Clock, mounts: Path = Path("/proc/self/mounts")) -> None:
        datadir.refuse_unsafe(directory, mounts)
        with _stated(f"the data directory {directory}"):
            directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._place = f"the data directory {directory}"
        self._clock = clock
        self._file = directory / datadir.UNFINISHED_COPY
        self._connection: apsw.Connection | None = None
        self._lock = _locked(directory, "stop it, or choose another directory")

    def begin(self, head: LogHead) -> int | None:
        """Begin or continue the copy in the unfinished file. Refuses a directory with a log that has had events."""
        with _stated(self._place):
            if (self._directory / datadir.DATABASE).exists() and self._is_finished(head):
                return None
            self._connection = database.connect(self._file, max_bytes=_NO_LIMIT, create=True)
            database.create_or_migrate(self._connection, LogTime(self._clock, None).anchor())
            newest: int | None = self._connection.execute("SELECT max(seq) FROM events").get
            log_id = self._connection.execute("SELECT log_id FROM log").get
            if newest is not None and log_id != head.log_id:
                raise LogUnavailableError(
                    f"{self._place} holds an unfinished copy of another event log ({log_id}): {_EMPTY}, or remove "
                    f"{self._file}"
                )
            self._connection.execute("UPDATE log SET log_id = ?", (head.log_id,))
        return newest or 0

    def newest(self) -> Row | None:
        """The newest event that the target has."""
        with _stated(self._place):
            found: Row | None = self._open.execute(
                f"SELECT {_columns(EVENTS)} FROM events ORDER BY seq DESC LIMIT 1"
            ).fetchone()
        return found

    def add(self, events: Sequence[Row]) -> None:
        """Store events durably."""
        with _stated(self._place), self._open:
            self._insert(EVENTS, events)
            self._open.execute("UPDATE log SET events = events + ?", (len(events),))

    def fill(self, head: LogHead, state: Iterable[tuple[CopiedTable, Iterator[Sequence[Row]]]]) -> None:
        """Replace everything except the events. Deletes the events that the source has deleted meanwhile."""
        with _stated(self._place):
            self._open.execute("BEGIN IMMEDIATE")
            for table, portions in state:
                self._open.execute(f"DELETE FROM {table.name}")
                for portion in portions:
                    self._insert(table, portion)
            self._open.execute("DELETE FROM events WHERE seq < ?", (head.first_seq,))
            self._open.execute("UPDATE log SET events = events - ?", (self._open.changes(),))
            anchor = Anchor(self._clock.boot_id, self._clock.boot_ms(), self._clock.wall_ms(), head.log_ms)
            self._open.execute(
                "UPDATE log SET boot_id = ?, boot_ms = ?, wall_ms = ?, log_ms = ?, "
                "groups = (SELECT count(*) FROM groups), "
                f"log_end_bytes = (SELECT coalesce(sum({SIZE}), 0) FROM log_ends)",
                anchor,
            )
            # The next event gets the number after the newest event that the source ever had, also if it is deleted.
            self._open.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
            self._open.execute("INSERT INTO sqlite_sequence VALUES ('events', ?)", (head.last_seq,))

    def publish(self) -> None:
        """Commit, and give the file the name that Karrot opens."""
        database_file = self._directory / datadir.DATABASE
        with _stated(self._place):
            self._open.execute("COMMIT")
            self._open.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._open.close()
            # A write-ahead log must never be next to another database than its own: SQLite would apply it.
            for name in (datadir.DATABASE, f"{datadir.DATABASE}-wal", f"{datadir.DATABASE}-shm"):
                (self._directory / name).unlink(missing_ok=True)
            self._file.replace(database_file)
            flush(self._directory)

    def close(self) -> None:
        """Release the directory. What is not committed is lost."""
        if self._connection is not None:
            self._connection.close()
        self._lock.close()

    @property
    def _open(self) -> apsw.Connection:
        if self._connection is None:
            raise LogUnavailableError(f"the copy to {self._place} has not begun")
        return self._connection

    def _is_finished(self, head: LogHead) -> bool:
        """Whether the directory's log is a finished copy. False for a log that never had an event."""
        connection = database.connect_reader(self._directory / datadir.DATABASE)
        try:
            if connection.execute("SELECT count(*) FROM sqlite_schema").get == 0:
                return False
            _refuse_unusable(connection, self._place)
            own = _head(connection, self._clock)
        finally:
            connection.close()
        if own.log_id == head.log_id and own.last_seq == head.last_seq:
            return True
        if own.log_id == head.log_id or own.last_seq:
            raise LogUnavailableError(
                taken_target(self._place, head, log_id=own.log_id, last_seq=own.last_seq, empty=_EMPTY)
            )
        return False

    def _insert(self, table: CopiedTable, rows: Sequence[Row]) -> None:
        values = ", ".join("CAST(? AS TEXT)" if kind in _TEXTS else "?" for kind in table.columns.values())
        sql = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({values})"
        self._open.executemany(sql, rows)


@contextlib.contextmanager
def _stated(place: str) -> Iterator[None]:
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise LogUnavailableError(f"{place} cannot be used: {type(error).__name__}: {error}") from error


def _locked(directory: Path, in_use: str) -> FileLock:
    """Lock the directory as a service does. It may wait for orphaned workers of a dead service."""
    try:
        lock = FileLock(directory / "dir.lock")
    except OSError as error:
        raise LogUnavailableError(f"cannot lock the data directory {directory}: {error.strerror}") from error
    if not lock.try_acquire(_LOCK_WAIT_S):
        lock.close()
        raise LogUnavailableError(f"the data directory {directory} is in use by a running Karrot: {in_use}")
    return lock


def _refuse_unusable(connection: apsw.Connection, place: str) -> None:
    version, supported = connection.pragma("user_version"), len(database.MIGRATIONS)
    if connection.pragma("application_id") != database.APPLICATION_ID:
        raise LogUnavailableError(f"{place} is a database of another program")
    if version > supported:
        raise LogUnavailableError(f"{place} has schema version {version}: copy it with the newer Karrot that wrote it")
    if version < supported:
        raise LogUnavailableError(
            f"{place} has schema version {version}, and this Karrot copies version {supported}: start `karrot serve` "
            "of this version with it once, which migrates it"
        )


def _head(connection: apsw.Connection, clock: Clock) -> LogHead:
    row: Any = connection.execute(_HEAD).fetchone()
    log_id, first, last, groups, log_end_bytes, log_ms, boot_id, boot_ms, wall_ms = row
    now_ms = LogTime(clock, Anchor(boot_id, boot_ms, wall_ms, log_ms)).now()
    return LogHead(log_id, first or (last or 0) + 1, last or 0, groups, log_end_bytes, now_ms, log_ms)


def _columns(table: CopiedTable) -> str:
    """The columns as types that a copy can write. A damaged row can hold a value of any type."""
    kinds: Mapping[str, ColumnKind] = table.columns
    return ", ".join(f"CAST({name} AS {_READ_AS.get(kind, 'BLOB')})" for name, kind in kinds.items())
