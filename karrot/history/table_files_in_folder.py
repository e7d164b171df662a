"""Lists the data files of tables in a folder of this machine. `karrot.history.table_files_in_s3` does so for S3."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from time import monotonic

from karrot.history.answers_and_errors import HistoryError, HistoryFailed
from karrot.history.days_with_data import NOTE
from karrot.history.delta_tables import DataFile, data_files, open_table, why

_limit: ContextVar[tuple[float, float] | None] = ContextVar("time limit of the history", default=None)
"""The time limit of a thread's queries in seconds, and the end of the limit."""


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
    seconds, _ = _limit.get() or (0, 0)
    return HistoryFailed("history_too_slow", f"{place} did not give the answer within {seconds:g} s")


class FileGone(Exception):  # noqa: N818 (names what happened)
    """A listed file does not exist any more. The message is the place of the file."""


def listed(place: str, options: Mapping[str, str], version: int | None) -> Sequence[DataFile] | None:
    """List the files of a table; ``None`` if there is no table. Raises `HistoryError` and OSError."""
    from deltalake.exceptions import DeltaError  # noqa: PLC0415 (an extra)

    try:
        table = open_table(place, options, version)
        return None if table is None else data_files(table)
    except DeltaError as error:
        raise HistoryError(f"{place} cannot be read: {why(error)}") from error


class TablesInFolder:
    """The tables in a folder, where DuckDB reads them. ``str`` shows the place to users.

    If the place cannot be read, the methods raise a `HistoryError` or an `OSError`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def __str__(self) -> str:
        return str(self._root)

    def exists(self, name: str = "") -> bool:
        """Whether a file or folder whose path begins with ``name`` exists."""
        return self._root.is_dir() and (not name or any(self._root.glob(f"{name}*")))

    def listed(self, table: str, version: int | None) -> Sequence[DataFile] | None:
        """The data files of a version of a table, by default of the newest one; ``None`` if there is no table."""
        place = f"{self._root}/{table}"
        try:
            return listed(place, {}, version)
        except OSError as error:
            raise HistoryError(f"{place} cannot be read: {why(error)}") from error

    def path(self, table: str, file: DataFile) -> str:
        """Where DuckDB reads a file. No other file ever has this path."""
        return f"{self._root}/{table}/{file.path}"

    def at_hand(self, _table: str, _files: Mapping[str, DataFile]) -> AbstractContextManager[None]:
        """Have files of a table at their paths inside the ``with`` block. Raises `FileGone`."""
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
