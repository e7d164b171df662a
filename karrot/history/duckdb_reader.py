"""Lists the files of a table by day, and runs DuckDB queries that see all files as they were at one moment.

The pipeline replaces files of the tables: ``derive`` renames a new file over the old one, and ``compact`` merges
streamed files. DuckDB opens each file several times during a query, so a query could see both the old and the new file.
So this module lists the files before and after each query, and repeats the query if a file changed or disappeared. New
files do not cause a repeat: a stream adds a batch every few seconds, and a query over many days takes longer.
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
    "offsets_minute": f"{_DERIVE} (after karrot pipeline offsets)",
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
"""The text of DuckDB's error for a signal during a query. DuckDB has no error class for this case."""

Row = tuple[Any, ...]


class StoredFile(NamedTuple):
    """A file with the attributes that change when its content changes."""

    path: str
    inode: int
    size: int
    modified_ns: int


class Table(NamedTuple):
    """One table in the directory of the tables."""

    directory: Path
    name: str

    @property
    def is_derived(self) -> bool:
        """Whether ``derive`` can make the table again from other tables."""
        return self.name not in _STREAMED

    def days(self, wanted: Callable[[date], bool] = lambda _day: True) -> dict[date, Path]:
        """The directories of the wanted days that have data, in the order of the days; none if there is no such table.

        A day has data if it has a file that is not empty. A power failure can leave empty files.
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
        """The day of a file, from its directory; ``None`` if the file is not in a day's directory."""
        below = Path(file).relative_to(self.directory / self.name).parts
        return day_of(below[0]) if below else None

    def files(self, wanted: Callable[[date], bool]) -> tuple[StoredFile, ...]:
        """The files of the wanted days, as they are now.

        Raises `FileNotFoundError` if a file disappears during the listing. The list could then lack the file that
        replaced it.
        """
        return tuple(file for day, path in self._directories().items() if wanted(day) for file in _files(path))


class Duck:
    """Runs DuckDB in memory, for any number of threads. It starts at the first query, after the process has forked."""

    def __init__(self, directory: Path, *, threads: int, memory: str) -> None:
        self._directory = directory
        self._config = {**_CONFIG, "threads": threads, "memory_limit": memory}
        self._connection: DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    def rows(self, table: str, wanted: Callable[[date], bool], query: str, asked: Mapping[str, object]) -> list[Row]:
        """Return the rows of ``query``; no rows if the table has none of the wanted days.

        The query names the table ``{table}`` or, to use the column ``filename``, ``{table_with_files}``. The query is
        repeated if a file changes. Raises `HistoryUnavailable` or `UnreadableTable`; Ctrl-C raises KeyboardInterrupt.
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
        raise UnreadableTable(f"{self._directory}/{table} changed {_ATTEMPTS} times while it was read: try again")

    def start(self) -> "DuckDBPyConnection":
        """Return the connection from which all cursors are made; open it if needed. Raises `HistoryUnavailable`."""
        try:
            import duckdb  # noqa: PLC0415 (an extra)
        except ModuleNotFoundError as error:
            raise HistoryUnavailable(
                "The history needs DuckDB, which is not installed: pip install 'karrot-burrow[history]'."
            ) from error
        with self._lock:
            if self._connection is None:
                self._connection = duckdb.connect(":memory:", config=self._config)
            return self._connection

    def close(self) -> None:
        """Close the connection. Another query would open a new connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run(self, query: str, asked: Mapping[str, object], files: list[str]) -> list[Row]:
        # Different versions of Karrot can have written the days. A column that a file lacks is NULL in its rows.
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
    """Raise `NoTables` with a message for the user if the tables are missing. The query needs the table ``first``."""
    table, maker = directory / first, _MAKERS[first]
    if not directory.is_dir():
        source = "offsets" if first == "commits" else "ingest"
        raise NoTables(f"{directory}: no such directory. Run karrot pipeline {source} and derive to make the tables")
    if not table.is_dir():
        raise NoTables(f"{directory} has no table {first}: run {maker}")
    if not Table(directory, first).days():
        has_files = next(_files(table), None) is not None
        wrong = (
            "has files but no day=YYYY-MM-DD directories, so the pipeline did not write it" if has_files else "is empty"
        )
        raise NoTables(f"{table} {wrong}: run {maker} to make it again")


def named(
    cluster: str | None, group: str | None, parts: Mapping[str, str | int] | None = None
) -> tuple[str, dict[str, object]]:
    """Make the SQL conditions for the given names, and the values to bind. The SQL text never contains a name."""
    asked = {"cluster": cluster, "consumer": group, **(parts or {})}
    given: dict[str, object] = {column: value for column, value in asked.items() if value is not None}
    for value in given.values():
        str(value).encode()  # raises for surrogates (invalid UTF-8 in a command): no name has them
    return "".join(f" AND {column} = ${column}" for column in given), given


def _files(directory: Path) -> Iterator[StoredFile]:
    """Find the data files below a directory. Names that begin with ``.`` or ``_`` are not data."""
    for parent, below, names in os.walk(directory, onerror=_raised):
        below[:] = sorted(name for name in below if name[0] not in "._")
        for name in sorted(names):
            if name.endswith(".parquet") and name[0] not in "._":
                path = Path(parent, name)
                found = path.stat()
                yield StoredFile(str(path), found.st_ino, found.st_size, found.st_mtime_ns)


def _raised(error: OSError) -> None:
    """Raise the error: a directory that disappeared, or that this user may not read, must not count as empty."""
    raise error


def _listed(place: Table, wanted: Callable[[date], bool]) -> tuple[StoredFile, ...] | None:
    """List the files; ``None`` if a file disappeared during the listing."""
    try:
        return place.files(wanted)
    except FileNotFoundError:
        return None


def _are_still_there(files: tuple[StoredFile, ...], place: Table, wanted: Callable[[date], bool]) -> bool:
    return set(files) <= set(_listed(place, wanted) or ())


def _sentence(place: Table, error: Exception) -> str:
    """Write DuckDB's message as one sentence, without its excerpt of the query."""
    message = str(error).split("\n\n", 1)[0].replace("\n", " ")
    cure = ": if an older Karrot wrote it, derive it again" if place.is_derived else ""
    return f"{place.directory}/{place.name} cannot be read ({message}){cure}"
