"""Runs queries by DuckDB over the files of a table, all of them as they were at one moment."""

import glob
import threading
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from karrot.history.results import HistoryUnavailable, UnreadableTable
from karrot.history.table_files import StoredFile, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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


class Duck:
    """A DuckDB without a database, for any number of threads; it starts with the first question (after a fork)."""

    def __init__(self, directory: Path, *, threads: int, memory: str) -> None:
        self._directory = directory
        self._config = {**_CONFIG, "threads": threads, "memory_limit": memory}
        self._connection: DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    def rows(self, table: str, wanted: Callable[[date], bool], query: str, asked: Mapping[str, object]) -> list[Row]:
        """The rows of a query over ``read_parquet({files})``; none if no wanted day is there.

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
        source = "read_parquet($files, union_by_name = true, hive_partitioning = false)"
        with self.start().cursor() as cursor:
            try:
                return cursor.execute(query.replace("{table}", source), {**asked, "files": files}).fetchall()
            except RuntimeError as error:
                if str(error) != _INTERRUPTED:
                    raise
                raise KeyboardInterrupt from error


def named(
    cluster: str | None, group: str | None, parts: Mapping[str, str | int] | None = None
) -> tuple[str, dict[str, object]]:
    """The conditions on what was named, and the values to bind to them. A name is never a word of the query."""
    asked = {"cluster": cluster, "consumer": group, **(parts or {})}
    given: dict[str, object] = {column: value for column, value in asked.items() if value is not None}
    for value in given.values():
        str(value).encode()  # bytes that are no UTF-8 come from a command line as surrogates: no name of a group
    return "".join(f" AND {column} = ${column}" for column in given), given


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
