from collections.abc import Callable

import pytest

from karrot.eventlog.base import Damaged, LogUnavailableError
from karrot.eventlog.event_log import EventLog
from support.eventlog.appended_events import append_event
from support.eventlog.event_log_contract import MAX_GROUPS, RETENTION_MS, STALE_MS, EventLogContract, OpenLog
from support.eventlog.mutes import assert_that_processes_share_mutes
from support.eventlog.postgres_server import DATABASE, USER, PostgresServer
from support.eventlog.rewound_log_contract import KeepCopy, RewoundLogContract
from support.manual_clock import ManualClock
from support.waiting import wait_for

from .conftest import OpenPostgres


class TestPostgresEventLog(EventLogContract):
    @pytest.fixture
    def open_log(self, clock: ManualClock, open_postgres: OpenPostgres) -> OpenLog:
        return lambda: open_postgres(
            clock, stale_after_ms=STALE_MS, retention_ms=RETENTION_MS, max_consumers=MAX_GROUPS
        )


class TestRewoundPostgresEventLog(RewoundLogContract):
    @pytest.fixture
    def open_log(self, clock: ManualClock, open_postgres: OpenPostgres) -> OpenLog:
        return lambda: open_postgres(clock)

    @pytest.fixture
    def keep_copy(self, server: PostgresServer, schema: str) -> KeepCopy:
        return lambda: copy_of(server, schema)


def copy_of(server: PostgresServer, schema: str) -> Callable[[], None]:
    """Dump a schema. The result restores the dump."""
    access = ("-h", "127.0.0.1", "-p", server.port, "-U", USER, "-d", DATABASE)
    dump = server.home / f"{schema}.dump"
    server.run("pg_dump", *access, "-n", schema, "-Fc", "-f", dump)

    def restore() -> None:
        with server.connect(DATABASE) as connection:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")
        server.run("pg_restore", *access, "--single-transaction", dump)

    return restore


def test_a_server_that_lacks_the_newest_events_is_read_again(
    server: PostgresServer, schema: str, open_postgres: OpenPostgres
) -> None:
    log = open_postgres()
    for consumer in ("a", "b", "b"):
        append_event(log, consumer=consumer)
    assert [state.key.consumer for state in log.live()] == ["a", "b"]
    with server.connect("karrot") as connection:  # what a standby has that did not get the events of b
        connection.execute(f"DELETE FROM {schema}.groups WHERE last_seq > 1")
        connection.execute(f"DELETE FROM {schema}.events WHERE seq > 1")
        connection.execute(f"UPDATE {schema}.log SET last_seq = 1, groups = 1")
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND usename = user"
        )
    wait_for(lambda: _appends(log, "c"))
    assert [state.key.consumer for state in log.live()] == ["a", "c"]
    assert append_event(log, consumer="d").seq == 3


def test_replicas_share_mutes_and_lose_none(open_postgres: OpenPostgres, clock: ManualClock) -> None:
    assert_that_processes_share_mutes(lambda: open_postgres(clock), clock)


def test_damaged_rows_are_skipped_until_the_next_event_of_the_group(
    server: PostgresServer, schema: str, open_postgres: OpenPostgres
) -> None:
    log = open_postgres()
    append_event(log)
    with server.connect("karrot") as connection:
        connection.execute(f"UPDATE {schema}.events SET received_at_ms = received_at_ms + 1")
        connection.execute(f"UPDATE {schema}.groups SET state = '\\x00'")
    assert (log.read(0), list(log.live())) == ([Damaged(log.log_id, 1)], [])
    append_event(log)
    assert [state.key.consumer for state in log.live()] == ["orders-svc"]


def _appends(log: EventLog, consumer: str) -> bool:
    try:
        return append_event(log, consumer=consumer).seq == 2
    except LogUnavailableError:
        return False
