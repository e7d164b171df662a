"""Prepares the event log that the settings name, once in the parent process, and opens it in each worker.

The driver of PostgreSQL is imported only if the settings name PostgreSQL.
"""
# ruff: noqa: PLC0415 (see the docstring)

import contextlib
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from karrot.clock import Clock
from karrot.eventlog.base import EventLog, LogUnavailableError
from karrot.eventlog.memory import MemoryEventLog
from karrot.eventlog.sql_log import ChosenLimits
from karrot.eventlog.sqlite import SqliteEventLog, datadir
from karrot.settings.options import Settings

if TYPE_CHECKING:
    from karrot.eventlog.postgres.connections import Database

OpenLog = Callable[[Settings], EventLog]
"""Opens the prepared event log with the limits in the settings. It is called after the fork."""

TellReplaced = Callable[[Path, str], None]
"""Is called with the new path of a damaged log of SQLite, and the reason."""


@contextlib.contextmanager
def prepared_log(settings: Settings, clock: Clock, tell_replaced: TellReplaced) -> Iterator[OpenLog]:
    """Check and migrate the event log, and keep it for this service until the end of the block.

    Raises `LogUnavailableError` if the event log cannot be used.
    """
    if settings.event_log == "memory":
        yield lambda chosen: MemoryEventLog(clock, **_limits(chosen))
    elif settings.is_on_postgresql:
        database = database_of_settings(settings)
        from karrot.eventlog.postgres import PostgresEventLog
        from karrot.eventlog.postgres.schema import prepare

        with contextlib.closing(database):
            opened = prepare(database, clock)
        yield lambda chosen: PostgresEventLog(
            database_of_settings(chosen), opened, clock, name=socket.gethostname(), **_limits(chosen)
        )
    else:
        with contextlib.closing(datadir.hold(settings.data_dir)):
            replaced = datadir.prepare(settings.data_dir, clock, max_bytes=settings.max_log_bytes)
            if replaced is not None:
                tell_replaced(*replaced)
            yield partial(_open_sqlite, clock, tell_replaced)


def _open_sqlite(clock: Clock, tell_replaced: TellReplaced, settings: Settings) -> EventLog:
    return SqliteEventLog(settings.data_dir, clock, on_replaced=tell_replaced, **_limits(settings))


def database_of_settings(settings: Settings) -> "Database":
    """The database that the settings name. Raises `LogUnavailableError` if it has no driver or a wrong URL."""
    try:
        from karrot.eventlog.postgres.connections import Database, DatabaseUrl
        from karrot.eventlog.postgres.passwords import password_of
    except ImportError as error:
        raise LogUnavailableError(
            f"an event log in PostgreSQL needs psycopg: pip install 'karrot-burrow[postgres]' ({error})"
        ) from error
    url = DatabaseUrl.parse(settings.event_log)
    return Database(url, password_of(settings, url))


def _limits(settings: Settings) -> ChosenLimits:
    return {
        "stale_after_ms": settings.stale_after * 1000,
        "retention_ms": settings.retention * 1000,
        "max_bytes": settings.max_log_bytes,
        "max_consumers": settings.max_consumers,
        "log_end_max_bytes": settings.log_end_max_bytes,
    }
