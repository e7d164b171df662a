"""Provides file locks between processes (``flock``), flushes files, and closes folders to other users.

A lock is released when the last process that shares it ends.
"""

import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import Self

import structlog

_POLL_S = 0.05
_log = structlog.get_logger(__name__)


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_private(folder: Path) -> None:
    """Take the access of all other users to this user's folder away, and log it.

    If only a group has access, or new files get the folder's group (setgid), somebody chose the group, so it keeps its
    access. A folder with the sticky bit, such as ``/tmp``, is for all users.
    """
    found = folder.stat()
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IRWXO and not mode & stat.S_ISVTX and found.st_uid == os.geteuid():
        with contextlib.suppress(PermissionError):  # a file system that has no modes of its own, such as FAT
            folder.chmod(mode & (0o7770 if mode & stat.S_ISGID else 0o7700))
            _log.warning(
                "all users had access to this folder; now they have not", code="access_removed", path=str(folder)
            )


def make_folder(folder: Path, mode: int) -> None:
    """Create a folder and its missing parents with a mode, and flush their names to the disk."""
    if not folder.exists():
        make_folder(folder.parent, mode)
        folder.mkdir(mode, exist_ok=True)
        flush(folder.parent)


class FileLock:
    """One lock file. The constructor opens it.

    The lock belongs to the open file, and a forked child shares the open file with its parent. Open a lock before the
    fork to share it with the workers (``dir.lock``). Open it after the fork to exclude the other workers
    (``commit.lock``, ``leader.lock``).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = self._open()
        self._held = False

    @property
    def held(self) -> bool:
        return self._held

    def acquire(self) -> None:
        """Wait for the lock without a time limit, and take it."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self._held = True

    def try_acquire(self, wait_s: float = 0.0) -> bool:
        """Take the lock if it is free or becomes free within ``wait_s``. Return whether this object holds the lock."""
        deadline = time.monotonic() + wait_s
        while not self._held:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._held = True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    break
                time.sleep(_POLL_S)
        return self._held

    def release(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        except OSError:  # no memory to unlock: closing the file also unlocks, and other workers wait for that
            fresh = self._open()
            os.dup2(fresh, self._fd, inheritable=False)
            os.close(fresh)
        self._held = False

    def close(self) -> None:
        """Close the file. If no child process shares the open file, this releases the lock."""
        os.close(self._fd)
        self._held = False

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
