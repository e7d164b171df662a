"""SQLite logs made to order."""

from pathlib import Path
from typing import Any

from karrot.burrow.payload import parse_stored
from karrot.clock import Clock
from karrot.eventlog.sqlite import SqliteEventLog, datadir

__all__ = ["MAX_BYTES", "open_sqlite"]

MAX_BYTES = 64 << 20


def open_sqlite(directory: Path, clock: Clock, *, prepare: bool = True, **options: Any) -> SqliteEventLog:
    """A log as a worker opens it, after what its parent does."""
    options = {"max_bytes": MAX_BYTES} | options
    if prepare:
        datadir.prepare(directory, clock, max_bytes=options["max_bytes"])
    return SqliteEventLog(directory, clock, decode=parse_stored, **options)
