"""A standby takes over: no event id is given twice, and the archive gets every event, even if the log lost events."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from karrot.clock import Clock
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.postgres import PostgresEventLog
from karrot.eventlog.postgres.connections import Database, DatabaseUrl
from karrot.eventlog.postgres.schema import prepare
from support.eventlog.appended_events import append_event, stored_events
from support.eventlog.postgres_server import DATABASE, PASSWORD, USER, PostgresServer, running_postgres
from support.eventlog.postgres_standby import streaming_standby
from support.eventlog.rewound_log_contract import append, archive_now, archived, ids, lost_events
from support.manual_clock import ManualClock
from support.reporters.archive_folder import archive_feed
from support.servers.faulty_proxy import faulty_proxy
from support.waiting import wait_for


@contextmanager
def log_on(servers: list[PostgresServer], clock: Clock) -> Iterator[PostgresEventLog]:
    """Open a log on several servers, like a worker of a replica."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    database = Database(DatabaseUrl.parse(f"postgresql://{USER}@{hosts}/{DATABASE}"), lambda: PASSWORD)
    log = PostgresEventLog(database, prepare(database, clock), clock)
    try:
        yield log
    finally:
        log.close()


def stores(log: PostgresEventLog, consumer: str) -> bool:
    try:
        append_event(log, consumer=consumer)
    except LogUnavailableError:
        return False
    return True


def last_seq_at(server: PostgresServer) -> object:
    with server.connect(DATABASE) as connection:
        return next(iter(connection.execute("SELECT last_seq FROM karrot.log").fetchone() or ()))


@pytest.mark.timeout(200)
def test_after_an_asynchronous_failover_no_id_is_given_again_and_the_archive_has_every_event(tmp_path: Path) -> None:
    clock, place = ManualClock(), tmp_path / "archive"
    with (
        running_postgres() as primary,
        faulty_proxy(primary.port) as network,
        streaming_standby(primary, synchronous=False, port=network.port) as standby,
        log_on([primary, standby], clock) as one,
        log_on([primary, standby], clock) as other,
    ):
        append(one, "a", "b")
        append(other, "c")
        wait_for(lambda: last_seq_at(standby) == 3)
        network.swallows = True
        append(one, "lost-1", "lost-2")
        append(other, "lost-3")
        archive_now(archive_feed(one, clock, place))
        told = ids(one)
        one.resign()
        primary.kill()
        standby.promote()
        wait_for(lambda: stores(other, "new-1"))
        wait_for(lambda: stores(one, "new-2"))
        append(one, "new-3", "new-4")
        archive_now(archive_feed(one, clock, place))
        assert ids(one)[:3] == told[:3]
        assert [each.event.consumer for each in stored_events(one)][3:] == ["new-1", "new-2", "new-3", "new-4"]
        assert set(ids(one)[3:]).isdisjoint(told)
        assert archived(place) == ["a", "b", "c", "lost-1", "lost-2", "lost-3", "new-1", "new-2", "new-3", "new-4"]
        assert lost_events(one) == 3
        assert one.log_id == other.log_id


@pytest.mark.timeout(200)
def test_after_a_synchronous_failover_and_a_restart_nothing_is_lost_and_nothing_is_repeated(tmp_path: Path) -> None:
    clock, place = ManualClock(), tmp_path / "archive"
    with (
        running_postgres() as primary,
        streaming_standby(primary, synchronous=True) as standby,
        log_on([primary, standby], clock) as log,
        log_on([primary, standby], clock) as idle,
    ):
        append(log, "a", "b")
        archive_now(archive_feed(log, clock, place))
        append(log, "c")
        told = ids(log)
        idle.flush()
        log.resign()
        primary.kill()
        standby.promote()
        with standby.connect() as connection:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
        wait_for(lambda: stores(log, "d"))
        archive_now(archive_feed(log, clock, place))
        log.resign()
        standby.stop("fast")
        standby.start()
        wait_for(lambda: stores(log, "e"))
        archive_now(archive_feed(log, clock, place))
        assert ids(log)[:3] == told
        assert archived(place) == ["a", "b", "c", "d", "e"]
        assert len({each.log_id for each in stored_events(log)}) == 3
        assert lost_events(log) == 0
        wait_for(lambda: idle.log_id == log.log_id)  # a replica without posts learns the id too


def test_a_copy_of_the_database_on_the_same_server_gives_no_id_again() -> None:
    clock, told = ManualClock(), list[str]()
    with running_postgres() as server:

        def administer(*statements: str) -> None:
            with server.connect() as connection:
                for statement in statements:
                    connection.execute(statement)

        with log_on([server], clock) as log:
            append(log, "a")
        administer(f"CREATE DATABASE copy TEMPLATE {DATABASE}")
        with log_on([server], clock) as log:
            append(log, "lost")
            told = ids(log)
        administer(f"DROP DATABASE {DATABASE}", f"ALTER DATABASE copy RENAME TO {DATABASE}")
        with log_on([server], clock) as log:
            append(log, "new")
            assert ids(log)[0] == told[0]
            assert ids(log)[1] not in told


def test_rows_that_were_put_back_into_emptied_tables_give_no_id_again() -> None:
    clock = ManualClock()
    with running_postgres() as server:
        tables = "karrot.log", "karrot.events", "karrot.groups"
        with log_on([server], clock) as log:
            append(log, "a")
        with server.connect(DATABASE) as connection:
            for number, table in enumerate(tables):
                connection.execute(f"CREATE TABLE kept_{number} AS SELECT * FROM {table}")
        with log_on([server], clock) as log:
            append(log, "lost")
            told = ids(log)
        with server.connect(DATABASE) as connection:
            for number, table in enumerate(tables):
                connection.execute(f"TRUNCATE {table}")
                connection.execute(f"INSERT INTO {table} SELECT * FROM kept_{number}")
        with log_on([server], clock) as log:
            append(log, "new")
            assert ids(log)[0] == told[0]
            assert ids(log)[1] not in told
