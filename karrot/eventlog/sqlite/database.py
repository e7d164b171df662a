"""Owns a process's SQLite connections to the log, in a file or in memory, and the schema of the database.

Opens the file again if it was damaged or replaced. A checkpoint copies the write-ahead log into the database file.
"""

import contextlib
import ctypes
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import structlog

from karrot import telemetry
from karrot.clock import Anchor, Clock, LogTime
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.locks import FileLock
from karrot.eventlog.rows import EVENT_FIELDS, GROUP_FIELDS, LOG_ID, counter_row

DATABASE = "events.db"
MARKER = "log-id"
_SET_ASIDE = f"{DATABASE}.corrupt-0*Z"

_APPLICATION_ID = 0x4B415252
"""``KARR`` in the file's header: it distinguishes Karrot's file from that of another program."""

# Text and bodies are read as bytes: apsw cannot return a row at all if a text in it is damaged.
_TEXTS = ("source", "age", "summary", "body", "cluster", "consumer", "state")
_EVENT_COLUMNS, GROUP_COLUMNS = (
    ", ".join(f"CAST({name} AS BLOB)" if name in _TEXTS else name for name in names)
    for names in (EVENT_FIELDS, GROUP_FIELDS)
)

EVENT_COLUMNS = f"{LOG_ID}, {_EVENT_COLUMNS}"

WAL_LIMIT = 64 << 20
"""The size in bytes to which a checkpoint truncates the emptied write-ahead log."""

_BUSY_MS = 2000
_IDLE_READERS = 4
_FRAMES = 1000
_WARN_EVERY_S = 60.0
_Identity = tuple[int, int]
_Identities = tuple[_Identity, _Identity]
_log = structlog.get_logger(__name__)
_VERSION_1 = """
CREATE TABLE log (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    log_id TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    boot_ms INTEGER NOT NULL,
    wall_ms INTEGER NOT NULL,
    log_ms INTEGER NOT NULL,
    events INTEGER NOT NULL,
    groups INTEGER NOT NULL
);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- without AUTOINCREMENT a deleted id is given out again, below a cursor
    previous INTEGER,                      -- the event of the same group before this one
    received_at_ms INTEGER NOT NULL,
    observed_at_ms INTEGER NOT NULL,
    log_time_ms INTEGER NOT NULL,
    source TEXT NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE groups (
    cluster TEXT NOT NULL,
    consumer TEXT NOT NULL,
    seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    log_time_ms INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    gone INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (cluster, consumer)
) WITHOUT ROWID;
CREATE TABLE heard (cluster TEXT PRIMARY KEY, at_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE counters (
    name TEXT NOT NULL, labels TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (name, labels)
) WITHOUT ROWID;
CREATE TABLE reporters (name TEXT PRIMARY KEY, log_id TEXT, seq INTEGER, state BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE rejects (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    received_at_ms INTEGER NOT NULL,
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    source TEXT NOT NULL,
    body BLOB NOT NULL
);
"""

_VERSION_2 = """
CREATE TABLE notes (
    reporter TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (reporter, name)
) WITHOUT ROWID;
"""

# Beyond KARROT_MAX_CONSUMERS each commit searches for a group to forget. With 50,000 groups a scan took 20 ms.
_VERSION_3 = "CREATE INDEX forgettable ON groups (log_time_ms) WHERE expired OR gone;"

# Readers query every two seconds which groups changed. Without this index SQLite scans every group: 2.5 ms for 10,000.
_VERSION_4 = "CREATE INDEX told ON groups (last_seq);"

# The rate of samples of a partition, not the number of groups, decides how much of ``log_ends`` changes in a commit.
_VERSION_5 = """
CREATE TABLE log_ends (
    cluster TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    touched_ms INTEGER NOT NULL, -- log time of the newest sample, rounded down to ten minutes
    samples BLOB NOT NULL,       -- karrot.eventlog.log_end_history.LogEndHistory.pack
    PRIMARY KEY (cluster, topic, partition)
);
CREATE INDEX log_ends_touched ON log_ends (touched_ms);
ALTER TABLE log ADD COLUMN log_end_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN age BLOB; -- karrot.event.LagAge as msgpack; NULL if unknown, or stored before version 5
"""

_VERSION_6 = """
CREATE TABLE posts (
    digest BLOB PRIMARY KEY, -- 2.0.0a1 kept idempotency keys here; unused
    seq INTEGER NOT NULL,
    log_time_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX posts_by_time ON posts (log_time_ms);
"""

# ``heard`` had times of the wall clock, and kept the largest time.
_VERSION_7 = "UPDATE heard SET at_ms = (SELECT log_ms - max(0, wall_ms - at_ms) FROM log);"

# The summary includes ``age``. That column stays for rows of 2.0.0a1. Readers compute a missing summary.
_VERSION_8 = (
    "ALTER TABLE events ADD COLUMN summary BLOB; -- a checksum, and karrot.eventlog.base.EventSummary as msgpack"
)

_VERSION_9 = """
CREATE TABLE earlier_ids (
    last_seq INTEGER PRIMARY KEY, -- the last event with the id
    log_id TEXT NOT NULL,
    given_seq INTEGER NOT NULL    -- the last known event with the id, even if the log lost it
);
"""

MIGRATIONS: tuple[str, ...] = (
    *(_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4),
    *(_VERSION_5, _VERSION_6, _VERSION_7, _VERSION_8, _VERSION_9),
)
"""``MIGRATIONS[n]`` migrates a file from version n to n + 1. Append new ones; never change an existing one."""


class DamagedDatabaseError(Exception):
    """The file is not a log of Karrot, or it is damaged. The message says what is wrong."""


DAMAGE = (DamagedDatabaseError, apsw.CorruptError, apsw.NotADBError)
"""What damage raises, and sometimes a failed read of an undamaged file. So check the file before it is renamed."""


def connect(path: Path, *, max_bytes: int, create: bool = False) -> apsw.Connection:
    """Open the file for durable commits. ``max_bytes`` limits its size: on a full volume, SQLite cannot delete rows."""
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    connection = apsw.Connection(str(path), flags=flags)
    if connection.readonly("main"):  # if SQLite may not write the file, even once, it opens the file to read only
        connection.close()
        raise apsw.CantOpenError("the file can be read, but not written")
    connection.set_busy_timeout(_BUSY_MS)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA journal_size_limit={WAL_LIMIT}")
    # Keep the space of both files after the last connection: without it, a full volume cannot even be read.
    keep = ctypes.c_int(1)
    connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(keep))
    page_size = connection.pragma("page_size")
    connection.execute(f"PRAGMA max_page_count={max(64, max_bytes // page_size)}")
    return connection


def create_or_migrate(connection: apsw.Connection, anchor: Anchor, migrations: Sequence[str] = MIGRATIONS) -> int:
    """Migrate the schema. Returns the old version. Raises `LogUnavailableError` for a newer Karrot's file."""
    before: int = connection.pragma("user_version")
    if before > len(migrations):
        raise LogUnavailableError(
            f"the event log has schema version {before}, but this Karrot supports versions up to {len(migrations)}: "
            "start the newer Karrot again, or move the data directory away"
        )
    if before == len(migrations):
        return before  # without a write, which a full volume would refuse
    with connection:
        for script in migrations[before:]:
            connection.execute(script)
        if before == 0:
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            connection.execute("INSERT INTO log VALUES (1, ?, ?, ?, ?, ?, 0, 0, 0)", (uuid.uuid4().hex, *anchor))
        connection.execute(f"PRAGMA user_version={len(migrations)}")
    return before


def check(connection: apsw.Connection) -> None:
    """Raise `DamagedDatabaseError` unless the file is an undamaged log of Karrot, or new and empty."""
    application_id = connection.pragma("application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if application_id == 0 and tables == 0:
        return
    if application_id != _APPLICATION_ID:
        raise DamagedDatabaseError("it is a database of another program")
    verdict = connection.execute("PRAGMA quick_check(1)").get
    if verdict != "ok":
        raise DamagedDatabaseError(str(verdict))


def set_aside(directory: Path, clock: Clock, reason: str, *, max_bytes: int) -> None:
    """Rename a damaged log and its write-ahead log. Delete older ones beyond ``max_bytes`` altogether."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clock.wall_ms() / 1000))
    aside = directory / f"{DATABASE}.corrupt-{_times_set_aside(directory) + 1:06}-{stamp}"
    for tail in ("", "-wal", "-shm"):
        part = directory / f"{DATABASE}{tail}"
        if part.exists():
            part.rename(f"{aside}{tail}")
    (directory / MARKER).unlink(missing_ok=True)
    kept_bytes = 0
    for log in sorted(directory.glob(_SET_ASIDE), reverse=True):
        parts = [*directory.glob(f"{log.name}*")]
        kept_bytes += sum(part.stat().st_size for part in parts)
        for part in parts if kept_bytes > max_bytes and log != aside else ():
            part.unlink()
    _log.error(
        "the event log was damaged and set aside; a new one begins",
        code="log_set_aside",
        path=str(aside),
        reason=reason,
    )


def _times_set_aside(directory: Path) -> int:
    return max((int(log.name.split("-")[1]) for log in directory.glob(_SET_ASIDE)), default=0)


def create(directory: Path, anchor: Anchor, *, max_bytes: int) -> apsw.Connection:
    """Open or create the log, and write ``log-id``. A new log counts the logs that were damaged or missing."""
    (directory / DATABASE).touch(0o600)  # SQLite gives its other files the same mode
    connection = connect(directory / DATABASE, max_bytes=max_bytes, create=True)
    before = create_or_migrate(connection, anchor)
    marker = directory / MARKER
    replaced = _times_set_aside(directory) + marker.exists()
    if before == 0 and replaced:
        _log.error("created a new event log: the previous one is damaged or missing", code="log_created_again")
        row = counter_row(telemetry.LOG_REPLACED.name, (), replaced)
        connection.execute("INSERT INTO counters VALUES (?, ?, ?)", row)
    log_id = connection.execute("SELECT log_id FROM log").get
    if not marker.exists() or marker.read_text().strip() != log_id:
        marker.touch(0o600)
        marker.write_text(f"{log_id}\n")
    return connection


class LogFile:
    """The connections to ``events.db``.

    `follow` and `replace` are called with ``commit.lock`` held; `reading` at any time, from any thread.
    ``wal_frames`` is the number of pages in the write-ahead log after the last commit. ``is_reopened`` says that the
    file was opened again since the last commit.
    """

    def __init__(self, directory: Path, clock: Clock, *, max_bytes: int) -> None:
        self._directory = directory
        self._clock = clock
        self._max_bytes = max_bytes
        self._idle: queue.LifoQueue[tuple[_Identities, apsw.Connection]] = queue.LifoQueue(_IDLE_READERS)
        self._suspect = False
        self._broken = False
        self.path = directory / DATABASE
        self._wal = directory / f"{DATABASE}-wal"
        self.time = LogTime(clock, None)
        self._open()
        self.is_reopened = False
        self.time = LogTime(
            clock, Anchor(*self.connection.execute("SELECT boot_id, boot_ms, wall_ms, log_ms FROM log").get)
        )

    def distrust(self, error: Exception) -> None:
        """Make `follow` open the file again: after an I/O error, the connection may hold wrong data about the file."""
        self._broken = True
        if isinstance(error, apsw.ReadOnlyError):  # after a failed open of -shm, also the readers keep it read-only
            self.close()

    def follow(self) -> None:
        """Ensure that the write connection uses the present files, and that the present files are not damaged."""
        if self._suspect:
            self.replace()
        elif self._broken or _identity(self.path) != self._opened:
            self._open()
        elif _identity(self._wal) != self._opened_wal:
            self._rescue_wal()

    def replace(self) -> None:
        """Open the file again. If it is damaged, rename it and continue with a new one. The log time continues too."""
        self.connection.close()
        try:
            if self.path.exists():
                with contextlib.closing(connect(self.path, max_bytes=self._max_bytes)) as connection:
                    check(connection)
        except DAMAGE as error:
            set_aside(self._directory, self._clock, str(error), max_bytes=self._max_bytes)
        self._suspect = False
        self._open()

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Lend a connection for one short read. Raises `LogUnavailableError` if the file cannot be read."""
        try:
            identity, connection = self._reader()
            yield connection
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._suspect = True  # the whole file is checked before the next commit
            raise LogUnavailableError(f"the event log is damaged: {error}") from error
        except (apsw.Error, OSError) as error:
            raise LogUnavailableError(f"the event log cannot be read: {error}") from error
        try:
            self._idle.put_nowait((identity, connection))
        except queue.Full:
            connection.close()

    def wal_bytes(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return self._wal.stat().st_size
        return 0

    def close(self) -> None:
        """Close every connection. The last process to close merges the write-ahead log into the file."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait()[1].close()
        self.connection.close()

    def _open(self) -> None:
        self.connection = create(self._directory, self.time.anchor(), max_bytes=self._max_bytes)
        self.log_id: str = self.connection.execute("SELECT log_id FROM log").get
        self._opened, self._opened_wal = _identity(self.path), _identity(self._wal)
        self.is_reopened = True
        self._broken = False
        self.wal_frames = 0
        self.connection.set_wal_hook(self._count_frames)  # replaces SQLite's hook, which checkpoints within the commit

    def _count_frames(self, _connection: apsw.Connection, _name: str, frames: int) -> int:
        self.wal_frames = frames
        return apsw.SQLITE_OK

    def _rescue_wal(self) -> None:
        """Merge a deleted write-ahead log while it is still open in this process, before its data is lost."""
        _log.error(
            "the write-ahead log was deleted while the service runs; merging the copy that is still open",
            code="wal_deleted",
        )
        # The first worker to notice merges the log for all. From then on the other workers' open files are stale.
        with contextlib.suppress(apsw.IOError):
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.connection.close()
        self._open()

    def _reader(self) -> tuple[_Identities, apsw.Connection]:
        current = (_identity(self.path), _identity(self._wal))
        with contextlib.suppress(queue.Empty):
            while True:
                identity, connection = self._idle.get_nowait()
                if identity == current:
                    return identity, connection
                connection.close()
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute("PRAGMA query_only=1")
        return current, connection


class Checkpointer:
    """Copies the write-ahead log into the database file (a checkpoint), under ``commit.lock``.

    A checkpoint runs after clients have their answers. By default SQLite does a checkpoint within a commit, so every
    client of that commit would wait for two more flushes. Logs a warning if the write-ahead log grows nevertheless.

    Only the writer thread uses it. ``seconds`` is a clock that never goes back.
    """

    def __init__(self, file: LogFile, lock: FileLock, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._lock = lock
        self._seconds = seconds
        self._quiet_until = seconds()

    def run(self) -> None:
        """Run a checkpoint if the write-ahead log is long enough. A failure loses nothing: the next run catches up."""
        if self._file.wal_frames < _FRAMES:
            return
        with self._lock:
            left = self._checkpoint()
        if left is not None and self._file.wal_bytes() > WAL_LIMIT:
            if self._seconds() < self._quiet_until:
                return
            self._quiet_until = self._seconds() + _WARN_EVERY_S
            _log.warning(
                "the write-ahead log is large and cannot be emptied",
                code="wal_not_emptied",
                mebibytes=self._file.wal_bytes() >> 20,
                reason=left,
                remedy=f"find who has the file open: fuser -v {self._file.path}",
            )

    def _checkpoint(self) -> str | None:
        """Run a checkpoint. Returns why part of the write-ahead log is left, or ``None`` if nothing is left."""
        try:
            self._file.follow()
            frames, done = self._file.connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.Error, OSError) as error:
            return f"a checkpoint failed: {type(error).__name__}: {error}"
        return "a program has an open read transaction on it" if done < frames else None


class MemoryFile:
    """Replaces `LogFile` for a log in memory. Reads and commits hold ``lock``, so no read sees half a commit."""

    def __init__(self, clock: Clock, *, max_bytes: int) -> None:
        self.lock = threading.RLock()
        self.is_reopened = False
        self.time = LogTime(clock, None)
        self.connection = connect(Path(":memory:"), max_bytes=max_bytes, create=True)
        create_or_migrate(self.connection, self.time.anchor())
        self.log_id: str = self.connection.execute("SELECT log_id FROM log").get

    def follow(self) -> None:
        """Do nothing: no other program can replace a log in memory."""

    def distrust(self, error: Exception) -> None:
        """Do nothing: a log in memory cannot be opened again."""

    def replace(self) -> None:
        """Raise `LogUnavailableError`: there is no file to set aside."""
        raise LogUnavailableError("the log in memory is damaged")

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        with self.lock:
            try:
                yield self.connection
            except apsw.Error as error:
                raise LogUnavailableError(f"the event log cannot be read: {error}") from error

    def wal_bytes(self) -> int:
        return 0

    def close(self) -> None:
        with self.lock:
            self.connection.close()


def _identity(path: Path) -> _Identity:
    try:
        found = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_dev, found.st_ino)
