"""Lists the files of a table day by day, in a form that tells whether they are still the same.

The pipeline replaces a day of a derived table by renaming a new file over the old one, and merges the files of a
streamed one. DuckDB opens a file more than once while it reads it, and so could meet the old one and the new one in one
query. Hence whoever reads looks whether the files that were there before are there after. Others may have come: a
stream adds a batch every few seconds, and a question about days of them takes longer than that.
"""

import os
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

from karrot.history.results import NoTables

_DERIVE = "karrot pipeline derive"
_STREAMED = frozenset({"commits", "ends", "events", "members", "partitions", "quarantine"})
_MAKERS = {
    "commits": "karrot pipeline offsets",
    "offsets_minute": f"{_DERIVE} (of what karrot pipeline offsets reads)",
    "lag_minute": _DERIVE,
}


class StoredFile(NamedTuple):
    """A file as it was found: another content has another one of these."""

    path: str
    inode: int
    size: int
    modified_ns: int


class Table(NamedTuple):
    """One table below the directory of the tables."""

    directory: Path
    name: str

    @property
    def is_derived(self) -> bool:
        """Whether it can be made again of others."""
        return self.name not in _STREAMED

    def days(self, wanted: Callable[[date], bool] = lambda _day: True) -> dict[date, Path]:
        """The directories of those days that have data, in order; none if the table is not there.

        Data is a file with bytes: a directory alone is no day, and a power failure can leave a file without any.
        """
        return {day: path for day, path in self._directories().items() if wanted(day) and _has_data(path)}

    def _directories(self) -> dict[date, Path]:
        try:
            names = sorted(entry.name for entry in os.scandir(self.directory / self.name))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = ((_day(name), self.directory / self.name / name) for name in names)
        return {day: path for day, path in found if day is not None}

    def day_of(self, file: str) -> date | None:
        """The day whose directory holds a file; ``None`` for a file that is not below one."""
        below = Path(file).relative_to(self.directory / self.name).parts
        return _day(below[0]) if below else None

    def files(self, wanted: Callable[[date], bool]) -> tuple[StoredFile, ...]:
        """The files of the days that are wanted, as they are now.

        Raises `FileNotFoundError` where one went between being listed and being looked at: what took its place may
        not have been listed.
        """
        return tuple(file for day, path in self._directories().items() if wanted(day) for file in _files(path))


def require_tables(directory: Path, first: str = "lag_minute") -> None:
    """Raises `NoTables` with a sentence where nothing can be read.

    ``first`` is the table that is there if any of those that are asked for is.
    """
    table, maker = directory / first, _MAKERS[first]
    if not directory.is_dir():
        source = "offsets" if first == "commits" else "ingest"
        raise NoTables(f"{directory}: no such directory; karrot pipeline {source} and derive make the tables")
    if not table.is_dir():
        raise NoTables(f"{directory} has no table {first}: {maker} makes it")
    if not Table(directory, first).days():
        has_files = next(_files(table), None) is not None
        wrong = (
            "has files but no day=YYYY-MM-DD directories, so this pipeline did not write it"
            if has_files
            else "is empty"
        )
        raise NoTables(f"{table} {wrong}: {maker} makes it anew")


def _day(name: str) -> date | None:
    try:
        return date.fromisoformat(name.removeprefix("day=")) if name.startswith("day=") else None
    except ValueError:
        return None


def _files(directory: Path) -> Iterator[StoredFile]:
    """The data below a directory; ``.`` and ``_`` begin the names of what is none."""
    for parent, below, names in os.walk(directory, onerror=_raised):
        below[:] = sorted(name for name in below if name[0] not in "._")
        for name in sorted(names):
            if name.endswith(".parquet") and name[0] not in "._":
                yield _stored(Path(parent, name))


def _has_data(directory: Path) -> bool:
    try:
        return any(file.size for file in _files(directory))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _stored(path: Path) -> StoredFile:
    found = path.stat()
    return StoredFile(str(path), found.st_ino, found.st_size, found.st_mtime_ns)


def _raised(error: OSError) -> None:
    """A directory that has gone, or may not be read, must not look empty."""
    raise error
