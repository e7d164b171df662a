"""Prepares the data directory: locks it for one service, then checks, recovers and migrates the log in it.

``dir.lock``    held by the service, inherited by its workers
``commit.lock`` held during each commit, by the worker that commits
``leader.lock`` held by the leader
``events.db``   the log; ``events.db.corrupt-<number>-<time>`` is a damaged log that Karrot renamed
``log-id``      the id of the directory's log; without it, an emptied log would look like a new log
"""

import contextlib
import os
import shutil
from pathlib import Path

import apsw

from karrot.clock import Clock, LogTime
from karrot.eventlog.base import Limits, LogUnavailableError
from karrot.eventlog.locks import FileLock, make_folder, make_private
from karrot.eventlog.sqlite import database
from karrot.eventlog.sqlite.store import SqliteTransaction
from karrot.eventlog.sqlite.write_ahead_log import newest_lost_event
from karrot.eventlog.transaction_rules import LogEndHistories
from karrot.eventlog.writer import PendingWrites

_NAME = "data directory (KARROT_DATA_DIR)"
_ORPHANS_WAIT_S = 5.0
_FULL_BYTES = 1 << 20
_OLDEST_SQLITE = (3, 51, 3)
_NETWORK = ("nfs", "cifs", "smb", "fuse.", "9p", "afs", "ceph", "lustre", "glusterfs")
_LOCAL = ("fuse.fuse-overlayfs",)


def hold(directory: Path, wait_s: float = _ORPHANS_WAIT_S) -> FileLock:
    """Lock the directory for this service and its workers. Raises `LogUnavailableError` after ``wait_s``."""
    try:
        make_folder(directory, 0o700)
        lock = FileLock(directory / "dir.lock")
        is_ours = lock.try_acquire(wait_s)
        make_private(directory)
    except OSError as error:
        raise LogUnavailableError(f"cannot use the {_NAME} {directory}: {error.strerror}") from error
    if not is_ours:
        lock.close()
        raise LogUnavailableError(f"the {_NAME} {directory} is in use by another Karrot")
    return lock


def prepare(directory: Path, clock: Clock, *, max_bytes: int, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """Recover, check and migrate the log, then close it again: no SQLite connection may be open during a fork.

    New events get another log id. If the volume is too full for that, returns SQLite's error: the first commit must do
    it. Renames a damaged file and creates a new log. Raises `LogUnavailableError` on a network file system, for an
    SQLite version that can corrupt the file, for a file from a newer Karrot, and if the directory is not writable.
    """
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split("."))) < _OLDEST_SQLITE:  # an apsw that uses the library of the system
        raise LogUnavailableError(
            f"SQLite {version} can corrupt a log that several workers write (its WAL-reset bug): "
            "install apsw with SQLite 3.51.3 or newer"
        )
    _refuse_network_filesystem(directory, mounts)
    try:
        with contextlib.suppress(database.DamagedDatabaseError, apsw.CorruptError):  # a failed read looks like damage
            return _open_and_close(directory, clock, max_bytes)
        return _open_and_close(directory, clock, max_bytes)
    except database.DAMAGE as error:
        database.set_aside(directory, clock, str(error), max_bytes=max_bytes)
        return _open_and_close(directory, clock, max_bytes)
    except (apsw.Error, OSError) as error:
        free = shutil.disk_usage(directory).free
        # SQLite reports a full volume as an I/O error.
        full = f" (the volume is full: {free} bytes are free)" if free < _FULL_BYTES else ""
        raise LogUnavailableError(f"cannot open the log in the {_NAME} {directory}: {error}{full}") from error


def _open_and_close(directory: Path, clock: Clock, max_bytes: int) -> str | None:
    path, newest_lost = directory / database.DATABASE, 0
    if path.exists():
        with contextlib.closing(database.connect(path, max_bytes=max_bytes)) as connection:
            database.check(connection)
            if (directory / database.MARKER).exists() and connection.pragma("user_version") == 0:
                raise database.DamagedDatabaseError("it is empty, but a log was here")
            newest_lost = newest_lost_event(connection)
    created = database.create(directory, LogTime(clock, None).anchor(), max_bytes=max_bytes)
    with contextlib.closing(created):
        try:
            # The file can be an older copy, or its write-ahead log damaged. Then it lacks events with the next numbers.
            with created:
                transaction = SqliteTransaction(created, Limits(), LogEndHistories(Limits()))
                known = transaction.log_id
                transaction.begin_id()
                transaction.compare({known: newest_lost})
                transaction.settle(PendingWrites({}, []))
        except apsw.FullError as error:
            return f"at the start: {error}"
    return None


def _refuse_network_filesystem(directory: Path, mounts: Path) -> None:
    if not mounts.exists():
        return
    real = os.path.realpath(directory)
    found = [line.split()[1:3] for line in mounts.read_text(errors="replace").splitlines()]
    inside = [
        (len(point), kind)
        for point, kind in ((point.replace("\\040", " "), kind) for point, kind in found)
        if real == point or real.startswith(point.rstrip("/") + "/")
    ]
    _, kind = max(inside, default=(0, ""))  # the file system that contains the directory
    if kind.startswith(_NETWORK) and kind not in _LOCAL:
        raise LogUnavailableError(
            f"the {_NAME} {directory} is on {kind}: SQLite's locks do not work on a network file system. "
            "Use a local or block volume"
        )
