"""Lists the files of tables in a folder of this machine. `karrot.history.table_files_in_s3` has the same methods."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from datetime import date
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TypeAlias

from karrot.history.answers_and_errors import HistoryError, HistoryFailed
from karrot.history.days_with_data import NOTE, day_of

_limit: ContextVar[tuple[float, float] | None] = ContextVar("time limit of the history", default=None)
"""The time limit of a thread's queries in seconds, and the end of the limit."""

IsWanted: TypeAlias = Callable[[date], bool]


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the time of all queries of this thread in a ``with`` block together. They raise `HistoryFailed`."""
    token = _limit.set((seconds, monotonic() + seconds))
    try:
        yield
    finally:
        _limit.reset(token)


def seconds_left() -> float | None:
    """Return the seconds before the time limit, at least 0; ``None`` without a limit."""
    limit = _limit.get()
    return None if limit is None else max(0.0, limit[1] - monotonic())


def too_slow(place: object) -> HistoryFailed:
    limit = _limit.get()
    within = "in time" if limit is None else f"within {limit[0]:g} s"
    return HistoryFailed("history_too_slow", f"{place} did not give the answer {within}")


class FilesChanged(Exception):  # noqa: N818 (names what happened)
    """Files disappeared or changed while they were listed or read. The caller lists them again."""


class StoredFile(NamedTuple):
    """A data file. DuckDB reads it at ``path``. ``version`` changes with its content."""

    day: date
    path: str
    name: str
    version: str | tuple[int, int]
    size: int


class TablesInFolder:
    """The tables in a folder, where DuckDB reads them. ``str`` shows the place to users.

    Files and folders whose names begin with ``.`` or ``_`` are not data. If the place cannot be read, the methods raise
    a `HistoryError` or an `OSError`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def __str__(self) -> str:
        return str(self._root)

    def exists(self, table: str = "") -> bool:
        """Whether the folder, or a table in it, exists, even without data."""
        return (self._root / table).is_dir()

    def days(self, table: str, wanted: IsWanted) -> tuple[date, ...]:
        """The wanted days that have a file that is not empty, in order. A power failure can leave empty files."""
        found = []
        for day, folder in self._folders(table, wanted):
            with suppress(FileNotFoundError, NotADirectoryError):
                if any(path.stat().st_size for path in _data_files(folder)):
                    found.append(day)
        return tuple(found)

    def files(self, table: str, wanted: IsWanted, *, now: bool = False) -> tuple[StoredFile, ...]:  # noqa: ARG002
        """The files, as they are now. Raises `FilesChanged` if a file disappears: the new file could be missing."""
        found = []
        try:
            for day, folder in self._folders(table, wanted):
                for path in _data_files(folder):
                    state = path.stat()
                    version = (state.st_ino, state.st_mtime_ns)
                    found.append(StoredFile(day, str(path), str(path), version, state.st_size))
        except FileNotFoundError as error:
            raise FilesChanged from error
        return tuple(found)

    def at_hand(self, _files: Iterable[StoredFile]) -> AbstractContextManager[None]:
        """Have these versions of the files at their paths inside the ``with`` block. Raises `FilesChanged`."""
        return nullcontext()

    def note(self) -> bytes | None:
        """The note of derived days. Raises `HistoryError` if the user may not read the note."""
        note = self._root / NOTE
        try:
            return note.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HistoryError(f"{note} cannot be read ({error.strerror}): let this user read it") from error

    def close(self) -> None:
        """Do nothing: a folder has no connections."""

    def _folders(self, table: str, wanted: IsWanted) -> Iterator[tuple[date, Path]]:
        """The folders of the wanted days, in order."""
        names: list[str] = []
        with suppress(FileNotFoundError, NotADirectoryError):
            names = sorted(entry.name for entry in os.scandir(self._root / table))
        for name in names:
            day = day_of(name)
            if day is not None and wanted(day):
                yield day, self._root / table / name


def _data_files(folder: Path) -> Iterator[Path]:
    for parent, below, names in os.walk(folder, onerror=_raised):
        below[:] = sorted(name for name in below if name[0] not in "._")
        yield from (Path(parent, name) for name in sorted(names) if name.endswith(".parquet") and name[0] not in "._")


def _raised(error: OSError) -> None:
    """Raise the error: a directory that disappeared, or that this user may not read, must not count as empty."""
    raise error
