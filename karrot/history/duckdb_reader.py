"""Runs DuckDB queries that see all files of a table as they were at one time.

The pipeline replaces files of the tables: ``derive`` puts a new file over the old one, and ``compact`` merges streamed
files. DuckDB opens each file several times during a query, so a query could see both the old and the new file.
So this module lists the files before and after each query, and repeats the query if a file changed or disappeared. New
files do not cause a repeat: a stream adds a batch every few seconds, and a query over many days takes longer.
"""

import glob
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from karrot.history.answers_and_errors import HistoryError, HistoryFailed
from karrot.history.table_files_in_folder import (
    FilesChanged,
    IsWanted,
    StoredFile,
    TablesInFolder,
    seconds_left,
    too_slow,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from karrot.history.table_files_in_s3 import TablesInS3

    StoredTables: TypeAlias = TablesInFolder | TablesInS3

STREAMED: Final = frozenset({"commits", "ends", "events", "members", "partitions", "quarantine"})
"""The tables that ``derive`` cannot make again from other tables."""

_ATTEMPTS: Final = 20
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_file_cache": False,
}
_AGAIN_S: Final = 0.05
_INTERRUPTED: Final = "Query interrupted"
"""The message of DuckDB's error for a signal during a query. DuckDB has no error class for this case."""

_SOURCE: Final = "read_parquet($files, union_by_name = true, hive_partitioning = false"
"""Different versions of Karrot can have written the days. A column that a file lacks is NULL in its rows."""

Row = tuple[Any, ...]
Names = Mapping[str, str | int]
"""Columns of a table with the value that they must have."""


class Duck:
    """Runs DuckDB in memory, for any number of threads. It starts at the first query, after the process has forked."""

    def __init__(self, stored: "StoredTables", *, threads: int, memory: str, most_rows: int = 1_000_000) -> None:
        self._stored = stored
        self._config = {**_CONFIG, "threads": threads, "memory_limit": memory}
        self._memory = memory
        self._most_rows = most_rows
        self._connection: DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    def rows(
        self,
        table: str,
        wanted: IsWanted,
        query: str,
        asked: Mapping[str, object],
        names: Names = MappingProxyType({}),
    ) -> list[Row]:
        """Return the rows of ``query``; no rows if the table has no wanted day.

        The query has ``{table}``, or ``{table_with_files}`` and the column ``filename`` first: the rows then begin with
        the day of the file. ``{named}`` stands for conditions on ``names``. ``asked`` are the values of the query's
        other parameters. The query is repeated if a file changes. Raises a `HistoryError`; Ctrl-C raises
        KeyboardInterrupt.
        """
        import duckdb  # noqa: PLC0415 (an extra)

        place = f"{self._stored}/{table}"
        values = dict(asked)
        if "{named}" in query:  # the SQL text never contains a name
            query = query.replace("{named}", "".join(f" AND {column} = ${column}" for column in names))
            values |= names
        has_files = "{table_with_files}" in query
        query = query.replace("{table}", f"{_SOURCE})").replace("{table_with_files}", f"{_SOURCE}, filename = true)")
        for _ in range(_ATTEMPTS):
            try:
                if not (before := self._stored.files(table, wanted)):
                    return []
                with self._stored.at_hand(before):
                    found = self._run(place, query, values | {"files": [glob.escape(each.path) for each in before]})
            except FilesChanged:
                continue
            except duckdb.Error as error:
                if self._are_still_there(before, table, wanted):
                    message = str(error).split("\n\n", 1)[0].replace("\n", " ")  # without its excerpt of the query
                    cure = "" if table in STREAMED else ": if an older Karrot wrote it, derive it again"
                    raise HistoryError(f"{place} cannot be read ({message}){cure}") from error
            else:
                if self._are_still_there(before, table, wanted):
                    days = {each.path: each.day for each in before}
                    return [(days[row[0]], *row[1:]) for row in found] if has_files else found
        raise HistoryError(f"{place} changed {_ATTEMPTS} times while it was read: try again")

    def start(self) -> "DuckDBPyConnection":
        """Return the connection of all cursors. Raises `HistoryError` without DuckDB."""
        try:
            import duckdb  # noqa: PLC0415 (an extra)
        except ModuleNotFoundError as error:
            raise HistoryError(
                "The history needs DuckDB, which is not installed: pip install 'karrot-burrow[history]'."
            ) from error
        with self._lock:
            if self._connection is None:
                self._connection = duckdb.connect(":memory:", config=self._config)
            return self._connection

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run(self, place: str, query: str, values: Mapping[str, object]) -> list[Row]:
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

    def _are_still_there(self, files: tuple[StoredFile, ...], table: str, wanted: IsWanted) -> bool:
        try:
            return set(files) <= set(self._stored.files(table, wanted, now=True))
        except FilesChanged:
            return False
