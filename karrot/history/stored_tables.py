"""Lists the files of tables in a folder of this machine."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from datetime import date
from pathlib import Path
from time import monotonic
from typing import NamedTuple, Protocol, TypeAlias

from karrot.history.held_days import NOTE, day_of
from karrot.history.results import TooSlow, UnreadableTable


class _Limit(NamedTuple):
    seconds: float
    ends: float


_current: ContextVar[_Limit | None] = ContextVar("time limit of the history", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Let the queries of this block, in this thread, take this long together. After that, they raise `TooSlow`."""
    token = _current.set(_Limit(seconds, monotonic() + seconds))
    try:
        yield
    finally:
        _current.reset(token)


def seconds_left() -> float | None:
    """The time that is left, at least zero; ``None`` without a limit."""
    limit = _current.get()
    return None if limit is None else max(0.0, limit.ends - monotonic())


def too_slow(place: object) -> TooSlow:
    limit = _current.get()
    within = "in time" if limit is None else f"within {limit.seconds:g} s"
    return TooSlow(f"{place} did not give the answer {within}")


IsWanted: TypeAlias = Callable[[date], bool]


class FilesChanged(Exception):  # noqa: N818 (names what happened)
    """Files disappeared or changed while they were listed or read. The caller lists them again."""


class StoredFile(NamedTuple):
    """A data file. DuckDB reads it at ``path``. ``version`` changes with its content."""

    day: date
    path: str
    name: str
    version: str | tuple[int, int]
    size: int


class StoredTables(Protocol):
    """The place of the tables. ``str`` shows it to users. Each `StoredFile.path` is below ``root``.

    Files and folders whose names begin with ``.`` or ``_`` are not data. If the place cannot be read, the methods raise
    a `HistoryError` or an `OSError`.
    """

    @property
    def root(self) -> Path:
        """The folder on this machine that has a folder for each table."""

    def exists(self) -> bool:
        """Whether there is anything at this place."""

    def has_table(self, table: str) -> bool:
        """Whether the place has the table, even without data."""

    def has_files(self, table: str) -> bool:
        """Whether the table has a data file, even outside the folders of its days."""

    def days(self, table: str, wanted: IsWanted) -> tuple[date, ...]:
        """The wanted days that have a file that is not empty, in order. A power failure can leave empty files."""

    def files(self, table: str, wanted: IsWanted, *, now: bool = False) -> tuple[StoredFile, ...]:
        """The files of the wanted days, as they are ``now``, or as they were a second ago. Raises `FilesChanged`.

        The answer is never older than the last `note` that this thread has read.
        """

    def at_hand(self, files: Iterable[StoredFile]) -> AbstractContextManager[None]:
        """Have these versions of the files at their paths inside the ``with`` block. Raises `FilesChanged`."""

    def note(self) -> bytes | None:
        """The note of derived days; ``None`` if there is none."""

    def close(self) -> None:
        """Release connections and temporary files."""


class TablesInFolder:
    """See `karrot.history.stored_tables.StoredTables`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def exists(self) -> bool:
        return self.root.is_dir()

    def has_table(self, table: str) -> bool:
        return (self.root / table).is_dir()

    def has_files(self, table: str) -> bool:
        return next(_data_files(self.root / table), None) is not None

    def days(self, table: str, wanted: IsWanted) -> tuple[date, ...]:
        found = []
        for day, folder in self._folders(table).items():
            with suppress(FileNotFoundError, NotADirectoryError):
                if wanted(day) and any(path.stat().st_size for path in _data_files(folder)):
                    found.append(day)
        return tuple(found)

    def files(self, table: str, wanted: IsWanted, *, now: bool = False) -> tuple[StoredFile, ...]:  # noqa: ARG002
        """The files, as they are now. Raises `FilesChanged` if one disappears: its successor could be missing."""
        days = ((day, folder) for day, folder in self._folders(table).items() if wanted(day))
        try:
            return tuple(_stored(day, path) for day, folder in days for path in _data_files(folder))
        except FileNotFoundError as error:
            raise FilesChanged from error

    def at_hand(self, _files: Iterable[StoredFile]) -> AbstractContextManager[None]:
        """Do nothing: DuckDB reads the files where they are."""
        return nullcontext()

    def note(self) -> bytes | None:
        """The note of derived days. Raises `UnreadableTable` if the user may not read the note."""
        note = self.root / NOTE
        try:
            return note.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UnreadableTable(f"{note} cannot be read ({error.strerror}): let this user read it") from error

    def close(self) -> None:
        """Nothing is open."""

    def _folders(self, table: str) -> dict[date, Path]:
        try:
            names = sorted(entry.name for entry in os.scandir(self.root / table))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = ((day_of(name), self.root / table / name) for name in names)
        return {day: path for day, path in found if day is not None}


def _stored(day: date, path: Path) -> StoredFile:
    found = path.stat()
    return StoredFile(day, str(path), str(path), (found.st_ino, found.st_mtime_ns), found.st_size)


def _data_files(folder: Path) -> Iterator[Path]:
    for parent, below, names in os.walk(folder, onerror=_raised):
        below[:] = sorted(name for name in below if name[0] not in "._")
        yield from (Path(parent, name) for name in sorted(names) if name.endswith(".parquet") and name[0] not in "._")


def _raised(error: OSError) -> None:
    """Raise the error: a directory that disappeared, or that this user may not read, must not count as empty."""
    raise error
