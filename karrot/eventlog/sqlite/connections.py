"""Owns a process's SQLite connections to the log: to the file, or to a database in memory.

Opens the file again if it was damaged or replaced. A checkpoint copies the write-ahead log into the database file.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import structlog

from karrot.clock import Anchor, Clock, LogTime
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.locks import FileLock
from karrot.eventlog.sqlite import database, datadir

_log = structlog.get_logger(__name__)

_IDLE_READERS = 4
_FRAMES = 1000
_WARN_EVERY_S = 60.0
_Identity = tuple[int, int]
_Identities = tuple[_Identity, _Identity]


class LogFile:
    """The connections to ``events.db``.

    `follow` and `replace` are called with ``commit.lock`` held; `reading` at any time, from any thread.
    ``wal_frames`` is the number of pages in the write-ahead log after the last commit.
    """

    def __init__(self, directory: Path, clock: Clock, *, max_bytes: int) -> None:
        self._directory = directory
        self._clock = clock
        self._max_bytes = max_bytes
        self._idle: queue.LifoQueue[tuple[_Identities, apsw.Connection]] = queue.LifoQueue(_IDLE_READERS)
        self._suspect: str | None = None
        self._broken = False
        self.path = directory / datadir.DATABASE
        self._wal = directory / f"{datadir.DATABASE}-wal"
        self.time = LogTime(clock, None)
        self._open()
        self.time = LogTime(
            clock, Anchor(*self.connection.execute("SELECT boot_id, boot_ms, wall_ms, log_ms FROM log").get)
        )

    def distrust(self) -> None:
        """Let `follow` open the file again: after an I/O error, the connection may hold wrong data about it."""
        self._broken = True

    def follow(self) -> None:
        """Ensure that the write connection uses the present files, not replaced ones, and that they are not damaged."""
        if self._broken or _identity(self.path) != self._opened:
            self.connection.close()
            self._open()
        elif _identity(self._wal) != self._opened_wal:
            self._rescue_wal()
        if self._suspect is not None:
            reason, self._suspect = self._suspect, None
            try:
                database.check(self.connection)
            except (apsw.Error, database.DamagedDatabaseError):
                self.replace(reason)

    def replace(self, reason: str) -> None:
        """Rename the damaged file and continue with a new one. The log time continues too."""
        self.connection.close()
        datadir.set_aside(self._directory, self._clock, reason)
        self._open()

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A connection for one short read. Raises `LogUnavailableError` if the file cannot be read."""
        try:
            identity, connection = self._reader()
            yield connection
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._suspect = str(error)  # the whole file is checked before the next commit
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
        self.connection = datadir.create(self._directory, self.time.anchor(), max_bytes=self._max_bytes)
        self.log_id: str = self.connection.execute("SELECT log_id FROM log").get
        self._opened, self._opened_wal = _identity(self.path), _identity(self._wal)
        self._broken = False
        self.wal_frames = 0
        self.connection.set_wal_hook(self._note_frames)  # replaces SQLite's hook, which checkpoints within the commit

    def _note_frames(self, _connection: apsw.Connection, _name: str, frames: int) -> int:
        self.wal_frames = frames
        return apsw.SQLITE_OK

    def _rescue_wal(self) -> None:
        """Merge a deleted write-ahead log while it is still open in this process, before its data is lost."""
        _log.error(
            "the write-ahead log was deleted while the service runs; merging the copy that is still open",
            code="wal_deleted",
        )
        # The first worker to notice merges it for all workers. From then on the other workers' open files are stale.
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
        return current, database.connect_reader(self.path)


class Checkpointer:
    """Copies the write-ahead log into the database file (a checkpoint), under ``commit.lock``.

    It runs after clients have their answers. By default SQLite does a checkpoint within a commit, so every client of
    that commit would wait for two more flushes. Logs a warning if the write-ahead log grows nevertheless.

    Only the writer thread uses it. ``seconds`` is a clock that never goes back.
    """

    def __init__(self, file: LogFile, lock: FileLock, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._lock = lock
        self._seconds = seconds
        self._quiet_until = seconds()

    def run(self) -> None:
        """Run a checkpoint if the write-ahead log is long enough. A failure loses nothing: the next one catches up."""
        if self._file.wal_frames < _FRAMES:
            return
        with self._lock:
            left = self._checkpoint()
        if left is not None and self._file.wal_bytes() > database.WAL_LIMIT:
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
    """Replaces `LogFile` for a log in memory. ``lock`` is held during each read and commit: none sees half a commit."""

    def __init__(self, clock: Clock, *, max_bytes: int) -> None:
        self.lock = threading.RLock()
        self.time = LogTime(clock, None)
        self.connection = database.connect(Path(":memory:"), max_bytes=max_bytes, create=True)
        database.create_or_migrate(self.connection, self.time.anchor())
        self.log_id: str = self.connection.execute("SELECT log_id FROM log").get

    def follow(self) -> None:
        """Do nothing: no other program can replace a log in memory."""

    def distrust(self) -> None:
        """Do nothing: a log in memory cannot be opened again."""

    def replace(self, reason: str) -> None:
        """Raise `LogUnavailableError`: there is no file to set aside."""
        raise LogUnavailableError(reason)

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
