"""Copies the write-ahead log into the database file (a checkpoint), after clients have their answers.

By default SQLite does this within a commit, so that everyone who waits for the commit waits for two more flushes.
"""

import logging
import time
from collections.abc import Callable

import apsw

from karrot.eventlog.locks import FileLock
from karrot.eventlog.sqlite.connections import LogFile
from karrot.eventlog.sqlite.database import WAL_LIMIT

_FRAMES = 1000
_TELL_EVERY_S = 60.0

_log = logging.getLogger(__name__)


class Checkpointer:
    """Checkpoints under ``commit.lock``, and warns if the write-ahead log grows nevertheless.

    Used by the writer thread alone. ``seconds`` is a clock that only goes forward.
    """

    def __init__(self, file: LogFile, lock: FileLock, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._lock = lock
        self._seconds = seconds
        self._quiet_until = seconds()

    def run(self) -> None:
        """Checkpoint if the write-ahead log is long enough. If that fails nothing is lost: the next one catches up."""
        if self._file.wal_frames < _FRAMES:
            return
        with self._lock:
            left = self._checkpoint()
        if left is not None and self._file.wal_bytes() > WAL_LIMIT:
            self._tell(left)

    def _checkpoint(self) -> str | None:
        """Checkpoint; return why part of the write-ahead log is left, if any is."""
        try:
            self._file.follow()
            frames, done = self._file.connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.Error, OSError) as error:
            return f"a checkpoint failed: {type(error).__name__}: {error}"
        return "a program holds a read transaction on it open" if done < frames else None

    def _tell(self, why: str) -> None:
        if self._seconds() < self._quiet_until:
            return
        self._quiet_until = self._seconds() + _TELL_EVERY_S
        _log.warning(
            "the write-ahead log has %d MiB and cannot be emptied: %s (`fuser -v %s` names who has the file open)",
            self._file.wal_bytes() >> 20,
            why,
            self._file.path,
        )
