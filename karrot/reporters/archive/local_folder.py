"""Stores segments in a local folder. Writes and syncs a temporary file, whose rename completes the segment."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from karrot.eventlog.locks import FileLock, flush, make_folder, make_private
from karrot.reporters.archive.segment_store import SegmentName, StoredSegment, StoreError

_LOCK = ".lock"
_UNFINISHED = ".part"
_REASONS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "full"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "permission"),
}


class Folder:
    """Stores segments as files. An unfinished file has a name that starts with a dot, and Spark ignores such files."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock: FileLock | None = None

    def open(self) -> Iterator[StoredSegment]:
        """Lock the folder, delete the unfinished files of a killed process, and yield the segments."""
        with _explained(f"the archive {self._root} cannot be used"):
            if self._lock is None:
                make_folder(self._root, 0o700)
                make_private(self._root)
                self._lock = FileLock(self._root / _LOCK)
            if not self._lock.try_acquire():
                raise StoreError("locked", f"another process writes to the archive {self._root}")
            for folder in self._root.glob("day=*/hour=*"):
                hour = f"{folder.parent.name}/{folder.name}"
                yield from self.within(hour)
                for part in folder.glob(f".*{_UNFINISHED}"):
                    if SegmentName.parse(f"{hour}/{part.name[1 : -len(_UNFINISHED)]}"):
                        part.unlink()

    def put(self, name: SegmentName, data: bytes) -> None:
        """Write, sync and rename the file. A failure leaves no file that a reader could take for a segment."""
        with _explained("a segment cannot be written"):
            place = self._root / name.path
            if place.exists():
                return
            make_folder(place.parent, 0o750)  # the root decides whether its group can read the segments
            part = place.with_name(f".{place.name}{_UNFINISHED}")
            try:
                part.touch(0o640)
                part.write_bytes(data)
                flush(part)
                part.rename(place)
                flush(place.parent)
            except OSError:
                for each in (part, place):
                    with suppress(OSError):
                        each.unlink()
                raise

    def within(self, hour: str) -> Iterator[StoredSegment]:
        with (
            _explained("the archive cannot be read"),
            suppress(FileNotFoundError),
            os.scandir(self._root / hour) as entries,
        ):
            for entry in entries:
                name = SegmentName.parse(f"{hour}/{entry.name}")
                if name is not None:
                    yield StoredSegment(name, entry.stat().st_size)

    def remove(self, names: Iterable[SegmentName]) -> None:
        """Delete segments, and the folders of hours and days that became empty."""
        with _explained("old segments cannot be deleted"):
            places = [self._root / name.path for name in names]
            for place in places:
                place.unlink(missing_ok=True)
            for folder in {place.parent for place in places}:
                with suppress(OSError):  # the folder is not empty
                    folder.rmdir()
                    folder.parent.rmdir()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, "unavailable")
        raise StoreError(reason, f"{what}: {error.strerror or error}") from error
