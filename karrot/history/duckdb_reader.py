"""Runs DuckDB queries that see all files of a table as they were at one moment.

The pipeline replaces files of the tables: ``derive`` puts a new file over the old one, and ``compact`` merges streamed
files. DuckDB opens each file several times during a query, so a query could see both the old and the new file.
So this module lists the files before and after each query, and repeats the query if a file changed or disappeared. New
files do not cause a repeat: a stream adds a batch every few seconds, and a query over many days takes longer.
"""

import glob
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from karrot.history.held_days import day_of
from karrot.history.results import AnswerTooLarge, HistoryUnavailable, NoTables, UnreadableTable
from karrot.history.stored_tables import FilesChanged, IsWanted, StoredFile, StoredTables, seconds_left, too_slow

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
_AGAIN_S: Final = 0.05
_INTERRUPTED: Final = "Query interrupted"
"""The text of DuckDB's error for a signal during a query. DuckDB has no error class for this case."""

Row = tuple[Any, ...]


class Table(NamedTuple):
    """One of the tables."""

    stored: StoredTables
    name: str

    def __str__(self) -> str:
        return f"{self.stored}/{self.name}"

    @property
    def is_derived(self) -> bool:
        """Whether ``derive`` can make the table again from other tables."""
        return self.name not in _STREAMED

    def days(self, wanted: IsWanted = lambda _day: True) -> tuple[date, ...]:
        """The wanted days that have data, in order; none if there is no such table."""
        return self.stored.days(self.name, wanted)

    def day_of(self, file: str) -> date | None:
        """The day of a file, from its directory; ``None`` if the file is not in a day's directory."""
        below = Path(file).relative_to(self.stored.root / self.name).parts
        return day_of(below[0]) if below else None


class Duck:
    """Runs DuckDB in memory, for any number of threads. It starts at the first query, after the process has forked."""

    def __init__(self, stored: StoredTables, *, threads: int, memory: str, most_rows: int = 1_000_000) -> None:
        self._stored = stored
        self._config = {**_CONFIG, "threads": threads, "memory_limit": memory}
        self._memory = memory
        self._most_rows = most_rows
        self._connection: DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    def rows(self, table: str, wanted: IsWanted, query: str, asked: Mapping[str, object]) -> list[Row]:
        """Return the rows of ``query``; no rows if the table has none of the wanted days.

        The query names the table ``{table}`` or, to use the column ``filename``, ``{table_with_files}``. The query is
        repeated if a file changes. Raises a `HistoryError`; Ctrl-C raises KeyboardInterrupt.
        """
        import duckdb  # noqa: PLC0415 (an extra)

        place = Table(self._stored, table)
        for _ in range(_ATTEMPTS):
            try:
                if not (before := self._stored.files(table, wanted)):
                    return []
                with self._stored.at_hand(before):
                    found = self._run(place, query, asked, [glob.escape(each.path) for each in before])
            except FilesChanged:
                continue
            except duckdb.Error as error:
                if self._are_still_there(before, table, wanted):
                    raise UnreadableTable(_sentence(place, error)) from error
            else:
                if self._are_still_there(before, table, wanted):
                    return found
        raise UnreadableTable(f"{place} changed {_ATTEMPTS} times while it was read: try again")

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
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run(self, place: Table, query: str, asked: Mapping[str, object], files: list[str]) -> list[Row]:
        """Run the query on these files. Raises an error of DuckDB if a file cannot be read."""
        import duckdb  # noqa: PLC0415 (an extra)

        # Different versions of Karrot can have written the days. A column that a file lacks is NULL in its rows.
        source = "read_parquet($files, union_by_name = true, hive_partitioning = false"
        words = query.replace("{table}", f"{source})").replace("{table_with_files}", f"{source}, filename = true)")
        if (left := seconds_left()) == 0:
            raise too_slow(place)
        with self.start().cursor() as cursor:
            try:
                with _interrupted_after(left, cursor):
                    found = cursor.execute(words, {**asked, "files": files}).fetchmany(self._most_rows + 1)
            except duckdb.InterruptException as error:
                raise too_slow(place) from error
            except duckdb.OutOfMemoryException as error:
                raise AnswerTooLarge(f"the answer from {place} needs more than {self._memory} of memory") from error
            except RuntimeError as error:
                if str(error) != _INTERRUPTED:
                    raise
                raise KeyboardInterrupt from error
        if len(found) > self._most_rows:
            raise AnswerTooLarge(f"the answer from {place} has more than {self._most_rows:,} rows")
        return found

    def _are_still_there(self, files: tuple[StoredFile, ...], table: str, wanted: IsWanted) -> bool:
        try:
            return set(files) <= set(self._stored.files(table, wanted, now=True))
        except FilesChanged:
            return False


def require_tables(stored: StoredTables, first: str = "lag_minute") -> None:
    """Raise `NoTables` with a message for the user if the tables are missing. The query needs the table ``first``."""
    table, maker = Table(stored, first), _MAKERS[first]
    if table.days():
        return
    if not stored.exists():
        source = "offsets" if first == "commits" else "ingest"
        raise NoTables(f"{stored}: no such directory. Run karrot pipeline {source} and derive to make the tables")
    if not stored.has_table(first):
        raise NoTables(f"{stored} has no table {first}: run {maker}")
    wrong = (
        "has files but no day=YYYY-MM-DD directories, so the pipeline did not write it"
        if stored.has_files(first)
        else "is empty"
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


@contextmanager
def _interrupted_after(seconds: float | None, cursor: "DuckDBPyConnection") -> Iterator[None]:
    if seconds is None:
        yield
        return
    done = threading.Event()

    def interrupt() -> None:
        if not done.wait(seconds):
            cursor.interrupt()
            while not done.wait(_AGAIN_S):  # an interrupt before DuckDB has started the query has no effect
                cursor.interrupt()

    timer = threading.Thread(target=interrupt, daemon=True)
    timer.start()
    try:
        yield
    finally:
        done.set()
        timer.join()


def _sentence(place: Table, error: Exception) -> str:
    """Write DuckDB's message as one sentence, without its excerpt of the query."""
    message = str(error).split("\n\n", 1)[0].replace("\n", " ")
    cure = ": if an older Karrot wrote it, derive it again" if place.is_derived else ""
    return f"{place} cannot be read ({message}){cure}"
