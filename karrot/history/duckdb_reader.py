"""Lists the files of a table day by day, and runs queries over them by DuckDB, all as they were at one moment.

The pipeline replaces a day of a derived table by renaming a new file over the old one, and merges the files of a
streamed one. DuckDB opens a file more than once while it reads it, and so could meet the old file and the new one in
one query. Therefore a query is run again unless the files that were there before it are there after it. Others may have
come: a stream adds a batch every few seconds, and a question about days of them takes longer than that.
"""

import glob
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from karrot.history.held_days import day_of
from karrot.history.results import HistoryUnavailable, NoTables, UnreadableTable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DERIVE = "karrot pipeline derive"
_STREAMED = frozenset({"commits", "ends", "events", "members", "partitions", "quarantine"})
_MAKERS = {
    "commits": "karrot pipeline offsets",
    "offsets_minute": f"{_DERIVE} (of what karrot pipeline offsets reads)",
    "lag_minute": _DERIVE,
}

_ATTEMPTS: Final = 20
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_file_cache": False,
}
_INTERRUPTED: Final = "Query interrupted"
"""What DuckDB makes of a signal that comes during a query: an error without a class of its own."""

Row = tuple[Any, ...]


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
        found: dict[date, Path] = {}
        for day, path in self._directories().items():
            with suppress(FileNotFoundError, NotADirectoryError):
                if wanted(day) and any(file.size for file in _files(path)):
                    found[day] = path
        return found

    def _directories(self) -> dict[date, Path]:
        try:
            names = sorted(entry.name for entry in os.scandir(self.directory / self.name))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = ((day_of(name), self.directory / self.name / name) for name in names)
        return {day: path for day, path in found if day is not None}

    def day_of(self, file: str) -> date | None:
        """The day whose directory holds a file; ``None`` for a file that is not below one."""
        below = Path(file).relative_to(self.directory / self.name).parts
        return day_of(below[0]) if below else None

    def files(self, wanted: Callable[[date], bool]) -> tuple[StoredFile, ...]:
        """The files of the days that are wanted, as they are now.

        Raises `FileNotFoundError` where one went between being listed and being looked at: what took its place may
        not have been listed.
        """
        return tuple(file for day, path in self._directories().items() if wanted(day) for file in _files(path))


class Duck:
    """A DuckDB without a database, for any number of threads; it starts with the first question (after a fork)."""

    def __init__(self, directory: Path, *, threads: int, memory: str) -> None:
        self._directory = directory
        self._config = {**_CONFIG, "threads": threads, "memory_limit": memory}
        self._connection: DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    def rows(self, table: str, wanted: Callable[[date], bool], query: str, asked: Mapping[str, object]) -> list[Row]:
        """The rows of a query over ``{table}``; none if no wanted day is there.

        ``{table_with_files}`` has the column ``filename`` too.
        Read again if a file was replaced meanwhile. Raises `HistoryUnavailable` or `UnreadableTable`; Ctrl-C raises
        KeyboardInterrupt, as anywhere else.
        """
        import duckdb  # noqa: PLC0415 (an extra)

        place = Table(self._directory, table)
        for _ in range(_ATTEMPTS):
            if (before := _listed(place, wanted)) is None:
                continue
            if not before:
                return []
            try:
                found = self._run(query, asked, [glob.escape(each.path) for each in before])
            except duckdb.Error as error:
                if _are_still_there(before, place, wanted):
                    raise UnreadableTable(_sentence(place, error)) from error
            else:
                if _are_still_there(before, place, wanted):
                    return found
        raise UnreadableTable(f"{self._directory}/{table} changed {_ATTEMPTS} times while it was read; ask again")

    def start(self) -> "DuckDBPyConnection":
        """The connection that all others are made of. Raises `HistoryUnavailable`."""
        try:
            import duckdb  # noqa: PLC0415 (an extra)
        except ModuleNotFoundError as error:
            raise HistoryUnavailable(
                "The history is read by DuckDB, which is not installed: pip install 'karrot-burrow[history]'."
            ) from error
        with self._lock:
            if self._connection is None:
                self._connection = duckdb.connect(":memory:", config=self._config)
            return self._connection

    def close(self) -> None:
        """End it; another question would start it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run(self, query: str, asked: Mapping[str, object], files: list[str]) -> list[Row]:
        # Days may have been written by different versions: a column that one of them lacks is NULL in its rows.
        source = "read_parquet($files, union_by_name = true, hive_partitioning = false"
        words = query.replace("{table}", f"{source})").replace("{table_with_files}", f"{source}, filename = true)")
        with self.start().cursor() as cursor:
            try:
                return cursor.execute(words, {**asked, "files": files}).fetchall()
            except RuntimeError as error:
                if str(error) != _INTERRUPTED:
                    raise
                raise KeyboardInterrupt from error


def require_tables(directory: Path, first: str = "lag_minute") -> None:
    """Raises `NoTables` with a sentence where none can be read. ``first`` is there if any table asked for is."""
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


def named(
    cluster: str | None, group: str | None, parts: Mapping[str, str | int] | None = None
) -> tuple[str, dict[str, object]]:
    """The conditions on what was named, and the values to bind to them. A name is never a word of the query."""
    asked = {"cluster": cluster, "consumer": group, **(parts or {})}
    given: dict[str, object] = {column: value for column, value in asked.items() if value is not None}
    for value in given.values():
        str(value).encode()  # bytes that are no UTF-8 come from a command line as surrogates: no name of a group
    return "".join(f" AND {column} = ${column}" for column in given), given


def _files(directory: Path) -> Iterator[StoredFile]:
    """The data below a directory; ``.`` and ``_`` begin the names of what is none."""
    for parent, below, names in os.walk(directory, onerror=_raised):
        below[:] = sorted(name for name in below if name[0] not in "._")
        for name in sorted(names):
            if name.endswith(".parquet") and name[0] not in "._":
                path = Path(parent, name)
                found = path.stat()
                yield StoredFile(str(path), found.st_ino, found.st_size, found.st_mtime_ns)


def _raised(error: OSError) -> None:
    """A directory that has gone, or may not be read, must not look empty."""
    raise error


def _listed(place: Table, wanted: Callable[[date], bool]) -> tuple[StoredFile, ...] | None:
    """The files, or ``None`` where some of them went meanwhile."""
    try:
        return place.files(wanted)
    except FileNotFoundError:
        return None


def _are_still_there(files: tuple[StoredFile, ...], place: Table, wanted: Callable[[date], bool]) -> bool:
    return set(files) <= set(_listed(place, wanted) or ())


def _sentence(place: Table, error: Exception) -> str:
    """What DuckDB says, without its drawing of the query."""
    told = str(error).split("\n\n", 1)[0].replace("\n", " ")
    cure = ": if an older Karrot wrote it, derive it again" if place.is_derived else ""
    return f"{place.directory}/{place.name} cannot be read ({told}){cure}"
