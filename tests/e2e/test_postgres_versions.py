"""The contract of the event log, on the oldest and on the newest PostgreSQL that Karrot supports."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from e2e.stack.postgres import NEWEST, OLDEST, unpacked_postgres
from karrot.eventlog.postgres import PostgresEventLog
from support.eventlog.event_log_contract import MAX_GROUPS, RETENTION_MS, STALE_MS, EventLogContract, OpenLog
from support.eventlog.postgres_log import open_postgres
from support.eventlog.postgres_server import PostgresServer, running_postgres, schema_name
from support.manual_clock import ManualClock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with unpacked_postgres(request.param) as programs, pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSTGRES_BIN", str(programs))
        with running_postgres() as running:
            with running.connect() as connection:
                assert str(connection.info.server_version).startswith(request.param.partition(".")[0])
            yield running


class TestOldestAndNewestPostgres(EventLogContract):
    @pytest.fixture
    def open_log(self, clock: ManualClock, server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[OpenLog]:
        schema = schema_name(request.node.name)
        with ExitStack() as opened:

            def open_one() -> PostgresEventLog:
                log = open_postgres(
                    server, schema, clock, stale_after_ms=STALE_MS, retention_ms=RETENTION_MS, max_consumers=MAX_GROUPS
                )
                return opened.enter_context(log)

            yield open_one
