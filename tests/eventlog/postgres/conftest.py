"""One PostgreSQL server for the tests of this folder; each test has a schema of its own."""

import contextlib
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from karrot.clock import Clock, SystemClock
from karrot.eventlog.postgres import PostgresEventLog
from karrot.eventlog.postgres.connections import Database
from karrot.eventlog.postgres.schema import prepare
from support.eventlog.postgres_log import database_of
from support.eventlog.postgres_server import PostgresServer, running_postgres, schema_name

OpenPostgres = Callable[..., PostgresEventLog]
_NUMBERS = count()


@pytest.fixture(scope="session", autouse=True)
def pools_leave_the_random_module_alone() -> Iterator[None]:
    """Give psycopg_pool its own source of chance: its threads would change the one that hypothesis controls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("psycopg_pool.base.random", Random().random)
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as running:
        yield running


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> str:
    """A name for a schema. The schemas go with the server, because dropping one takes longer than making it."""
    return schema_name(f"{request.node.name} {next(_NUMBERS)}")


@pytest.fixture
def database(server: PostgresServer, schema: str) -> Database:
    return database_of(server, schema)


@pytest.fixture
def open_postgres(database: Database) -> Iterator[OpenPostgres]:
    """Open the log of this test's schema, like a worker of a replica after the steps of its parent."""
    with contextlib.ExitStack() as opened:

        def open_one(clock: Clock | None = None, **options: Any) -> PostgresEventLog:
            clock = clock or SystemClock()
            log = PostgresEventLog(database, prepare(database, clock), clock, **options)
            opened.callback(log.close)
            return log

        yield open_one
