"""Defines what a query needs of the place of the tables: a list of their files, and the files on this machine."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

IsWanted: TypeAlias = Callable[[date], bool]


class FilesChanged(Exception):  # noqa: N818 (names what happened)
    """Files disappeared or changed while they were listed or read. The caller lists them again."""


class StoredFile(NamedTuple):
    """A data file of a day.

    DuckDB reads it at ``path``. ``name`` is its name at the place of the tables. ``version`` changes when the content
    changes.
    """

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
