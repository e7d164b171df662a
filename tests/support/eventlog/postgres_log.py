"""Opens event logs in PostgreSQL like a worker of the service."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from karrot.clock import Clock, SystemClock
from karrot.eventlog.postgres import PostgresEventLog
from karrot.eventlog.postgres.connections import Database, DatabaseUrl
from karrot.eventlog.postgres.schema import prepare
from support.eventlog.appended_events import append_event
from support.eventlog.postgres_server import PASSWORD, PostgresServer


def database_of(
    server: PostgresServer, schema: str, *, port: int | None = None, application_name: str = "karrot"
) -> Database:
    """The database of one process. ``port`` is that of a proxy."""
    url = server.url(schema, port=port, application_name=application_name)
    return Database(DatabaseUrl.parse(url), lambda: PASSWORD)


@contextmanager
def open_postgres(
    server: PostgresServer,
    schema: str,
    clock: Clock,
    *,
    port: int | None = None,
    application_name: str = "karrot",
    **options: Any,
) -> Iterator[PostgresEventLog]:
    """Open the log of a schema, after the steps of its parent."""
    known = database_of(server, schema, port=port, application_name=application_name)
    log = PostgresEventLog(known, prepare(known, clock), clock, **options)
    try:
        yield log
    finally:
        log.close()


def append_many(url: str, name: str, count: int) -> None:
    """Append events from three threads: the groups ``<name>-<thread>-<turn>``.

    The function is here because a spawned process cannot import a test module.
    """
    known = Database(DatabaseUrl.parse(url), lambda: PASSWORD)
    clock = SystemClock()
    log = PostgresEventLog(known, prepare(known, clock), clock, patience_s=20.0)

    def append_all(thread: int) -> None:
        for turn in range(count // 3):
            append_event(log, consumer=f"{name}-{thread}-{turn}")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(append_all, range(3)))
    log.close()
