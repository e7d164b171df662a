"""Stores segments in a local folder. It writes and syncs a temporary file, and renames it. The rename is the commit."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from karrot.eventlog.locks import FileLock, flush
from karrot.reporters.archive.segment_store import ArchiveHour, SegmentName, StoredSegment, StoreError

_LOCK = ".lock"
_UNFINISHED = ".part"
_REASONS = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.EROFS: "permission",
}


class Folder:
    """Stores segments as files. One whose name starts with a dot is unfinished, and Spark ignores it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock: FileLock | None = None

    def open(self) -> Iterator[StoredSegment]:
        """Lock the folder, delete incomplete files of a killed process, and list the segments."""
        with _explained(f"the archive {self._root} cannot be used"):
            self._take()
            for folder in self._root.glob("day=*/hour=*"):
                hour = ArchiveHour.parse(f"{folder.parent.name}/{folder.name}")
                if hour is not None:
                    yield from self._listed(hour, clear=True)

    def put(self, name: SegmentName, data: bytes) -> None:
        """Write, sync and rename the file. A failure leaves no file that a reader could take for a segment."""
        with _explained("a segment cannot be written"):
            place = self._root / name.path
            if not place.exists():
                self._make(place.parent)
                _write(place.with_name(f".{place.name}{_UNFINISHED}"), place, data)
            flush(place.parent)

    def within(self, hour: ArchiveHour) -> Iterator[StoredSegment]:
        with _explained("the archive cannot be read"):
            yield from self._listed(hour)

    def remove(self, names: Iterable[SegmentName]) -> None:
        """Delete segments. Also delete the folders of hours and days that are then empty."""
        with _explained("old segments cannot be deleted"):
            folders = set()
            for name in names:
                place = self._root / name.path
                place.unlink(missing_ok=True)
                folders.add(place.parent)
            for folder in folders:
                with suppress(OSError):  # the folder is not empty
                    folder.rmdir()
                    folder.parent.rmdir()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take(self) -> None:
        if self._lock is None:
            self._make(self._root)
            self._lock = FileLock(self._root / _LOCK)
        if not self._lock.try_acquire():
            raise StoreError("locked", f"another process writes to the archive {self._root}")

    def _make(self, folder: Path) -> None:
        """Create the folder and its parents, and sync them to disk."""
        if not folder.is_dir():
            self._make(folder.parent)
            folder.mkdir(exist_ok=True)
            flush(folder.parent)

    def _listed(self, hour: ArchiveHour, *, clear: bool = False) -> Iterator[StoredSegment]:
        with suppress(FileNotFoundError), os.scandir(self._root / hour.folder) as entries:
            for entry in entries:
                name = SegmentName.parse(f"{hour.folder}/{entry.name}")
                if name is not None:
                    yield StoredSegment(name, entry.stat().st_size)
                elif clear and _is_unfinished(hour, entry.name):
                    Path(entry.path).unlink()


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, "unavailable")
        raise StoreError(reason, f"{what}: {error.strerror or error}") from error


def _write(aside: Path, place: Path, data: bytes) -> None:
    try:
        aside.write_bytes(data)
        flush(aside)
        aside.rename(place)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise


def _is_unfinished(hour: ArchiveHour, file: str) -> bool:
    return (
        file.startswith(".")
        and file.endswith(_UNFINISHED)
        and (SegmentName.parse(f"{hour.folder}/{file[1 : -len(_UNFINISHED)]}") is not None)
    )
