"""Runs DuckDB queries over the tables as they were at one time, even if the pipeline writes meanwhile.

A data file of a table never changes. An answer reads the derived tables at the versions of one note, and each streamed
table at one version.
"""

import glob
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from karrot.history.answers_and_errors import HistoryError, HistoryFailed
from karrot.history.days_with_data import NOTE, note_of
from karrot.history.delta_tables import DataFile
from karrot.history.table_files_in_folder import FileGone, TablesInFolder, seconds_left, too_slow

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from karrot.history.table_files_in_s3 import TablesInS3

    StoredTables: TypeAlias = TablesInFolder | TablesInS3

STREAMED: Final = frozenset({"commits", "ends", "events", "members", "partitions", "quarantine"})
"""The tables that ``derive`` cannot make again from other tables."""

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_file_cache": False,
}
_AGAIN_S: Final = 0.05
_INTERRUPTED: Final = "Query interrupted"
"""The message of DuckDB's error for a signal during a query. DuckDB has no error class for this case."""

_SOURCE: Final = "read_parquet($files, union_by_name = true, hive_partitioning = false, filename = true)"
"""Different versions of Karrot can have written the days. A column that a file lacks is NULL in its rows."""

_MISSING: Final = re.compile(r'Referenced column "(\w+)" not found')
"""DuckDB's error if no file has a column."""

_FILES = "SELECT DISTINCT filename FROM {table} WHERE true{named}"

Row = tuple[Any, ...]
Names = Mapping[str, str | int]
"""Columns of a table with the value that they must have."""


IsWanted: TypeAlias = Callable[[date], bool]


class TablesAtOneTime:
    """The tables as one answer sees them. It is for one thread."""

    def __init__(self, stored: "StoredTables", duck: "Duck") -> None:
        self._stored = stored
        self._duck = duck
        self._versions = note_of(stored.note() or b"").versions
        self._files: dict[str, Mapping[str, DataFile]] = {}

    def __str__(self) -> str:
        return str(self._stored)

    @property
    def are_of_one_run(self) -> bool:
        """Whether the derived tables belong together. If not, a run of ``derive`` may have written some of them."""
        return bool(self._versions)

    def days(self, table: str, wanted: IsWanted, names: Names = MappingProxyType({})) -> tuple[date, ...]:
        """The wanted days of a table in order; with ``names``, the days on which the table has a row with them."""
        found = {path: file.day for path, file in self._listed(table).items() if wanted(file.day)}
        paths = [path for (path,) in self.rows(table, wanted, _FILES, {}, names)] if names else [*found]
        return tuple(sorted({found[path] for path in paths}))

    def rows(
        self,
        table: str,
        wanted: IsWanted,
        query: str,
        asked: Mapping[str, object],
        names: Names = MappingProxyType({}),
    ) -> list[Row]:
        """Return the rows of ``query``; no rows if the table has no wanted day.

        The query has ``{table}``, whose rows also have the column ``filename``. ``{day}`` stands for the day of a row,
        and ``{named}`` for conditions on ``names``. ``asked`` are the values of the query's other parameters. Raises a
        `HistoryError`, or `FileGone`; Ctrl-C raises KeyboardInterrupt.
        """
        import duckdb  # noqa: PLC0415 (an extra)

        place = f"{self._stored}/{table}"
        values = dict(asked)
        if "{named}" in query:  # the SQL text never contains a name
            query = query.replace("{named}", "".join(f" AND {column} = ${column}" for column in names))
            values |= names
        query = query.replace("{table}", _SOURCE)
        if not (files := {path: file for path, file in self._listed(table).items() if wanted(file.day)}):
            return []
        if "{day}" in query:
            query = query.replace("{day}", "map_extract($days, filename)[1]")
            values["days"] = {"key": [*files], "value": [file.day for file in files.values()]}
        try:
            with self.at_hand(table, wanted) as paths:
                return self._duck.run(place, query, values | {"files": paths})
        except duckdb.Error as error:
            for path, file in files.items():
                if not Path(path).exists():
                    raise FileGone(f"{place}/{file.path}") from error
            if missing := _MISSING.search(str(error)):
                cause = f"{place} has no column {missing[1]}, because an older Karrot wrote it"
                raise HistoryError(f"{cause}: run karrot pipeline run --once --only derive") from error
            message = str(error).split("\n\n", 1)[0].replace("\n", " ")  # without its excerpt of the query
            cure = "" if table in STREAMED else ": if an older Karrot wrote it, derive it again"
            raise HistoryError(f"{place} cannot be read ({message}){cure}") from error

    @contextmanager
    def at_hand(self, table: str, wanted: IsWanted) -> Iterator[list[str]]:
        """Have the files of a table's wanted days on this machine. The value is their paths, as DuckDB takes them."""
        files = {path: file for path, file in self._listed(table).items() if wanted(file.day)}
        with self._stored.at_hand(table, files):
            yield [*map(glob.escape, files)]

    def _listed(self, table: str) -> Mapping[str, DataFile]:
        """The files of a table by their paths on this machine; none if there is no table."""
        if table in self._files:
            return self._files[table]
        version = None if table in STREAMED else self._versions.get(table)
        if version is None and self._versions and table not in STREAMED:
            return {}  # the last run of derive had no rows for it
        found = self._stored.listed(table, version)
        if found is None and version is not None:
            raise HistoryError(
                f"{self._stored} has no table {table}, but {NOTE} names it: copy the table, or delete {NOTE} and run "
                "karrot pipeline run --once --only derive"
            )
        if found is None and self._stored.exists(f"{table}/day="):
            raise HistoryError(
                f"{self._stored} has tables of Karrot 2.0.0a1, which are plain Parquet: name other tables"
            )
        self._files[table] = {self._stored.path(table, file): file for file in found or ()}
        return self._files[table]


class Duck:
    """Runs DuckDB, for any number of threads. It starts at the first query, after the process has forked.

    What exceeds ``memory`` goes to files in ``spill``, and raises an error without this folder.
    """

    def __init__(self, *, threads: int, memory: str, spill: str = "", most_rows: int = 1_000_000) -> None:
        self._config = {**_CONFIG, "threads": threads, "memory_limit": memory, "temp_directory": spill}
        self._memory = memory
        self._most_rows = most_rows
        self._connection: DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    def start(self) -> "DuckDBPyConnection":
        """Return the connection of all cursors."""
        import duckdb  # noqa: PLC0415 (an extra)

        with self._lock:
            if self._connection is None:
                self._connection = duckdb.connect(":memory:", config=self._config)
            return self._connection

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def run(self, place: str, query: str, values: Mapping[str, object]) -> list[Row]:
        """Run the query once. Raises an error of DuckDB if a file cannot be read."""
        import duckdb  # noqa: PLC0415 (an extra)

        if (left := seconds_left()) == 0:
            raise too_slow(place)
        with self.start().cursor() as cursor:
            done = threading.Event()

            def interrupt() -> None:
                wait_s = left
                while not done.wait(wait_s):  # repeat: an interrupt before DuckDB begins the query has no effect
                    cursor.interrupt()
                    wait_s = _AGAIN_S

            timer = threading.Thread(target=interrupt, daemon=True)
            timer.start()
            try:
                found = cursor.execute(query, values).fetchmany(self._most_rows + 1)
            except duckdb.InterruptException as error:
                raise too_slow(place) from error
            except duckdb.OutOfMemoryException as error:
                message = f"the answer from {place} needs more than {self._memory} of memory"
                raise HistoryFailed("history_too_large", message) from error
            except RuntimeError as error:
                if str(error) != _INTERRUPTED:
                    raise
                raise KeyboardInterrupt from error
            finally:
                done.set()
                timer.join()
        if len(found) > self._most_rows:
            raise HistoryFailed("history_too_large", f"the answer from {place} has more than {self._most_rows:,} rows")
        return found
