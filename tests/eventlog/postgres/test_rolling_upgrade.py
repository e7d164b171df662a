"""An older and a newer Karrot use one schema at the same time, while the newer one migrates it under load."""

import threading
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Self

import psycopg
import pytest

from karrot.clock import SystemClock
from karrot.event import GroupKey
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.postgres import PostgresEventLog
from karrot.eventlog.postgres.connections import Database
from karrot.eventlog.postgres.schema import MIGRATIONS, prepare
from support.eventlog.appended_events import append_event, group_names, stored_events
from support.eventlog.postgres_log import database_of
from support.eventlog.postgres_server import PostgresServer
from support.waiting import wait_for

NEXT = "ALTER TABLE groups ADD COLUMN colour text NOT NULL DEFAULT 'grey'; CREATE TABLE colours (name text)"
NEWER = (*MIGRATIONS, NEXT)


class Load:
    """Appends until the block ends."""

    def __init__(self, log: PostgresEventLog, name: str) -> None:
        self.stored: list[str] = []
        self.refused: list[str] = []
        self._log = log
        self._name = name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def reach(self, more: int) -> None:
        goal = len(self.stored) + more
        wait_for(lambda: len(self.stored) >= goal)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            name = f"{self._name}-{number}"
            try:
                append_event(self._log, consumer=name)
            except LogUnavailableError as error:
                self.refused.append(str(error))
            else:
                self.stored.append(name)


@contextmanager
def held(server: PostgresServer, table: str) -> Iterator[None]:
    """Read a table in a transaction that stays open, as a backup does."""
    with server.connect("karrot") as connection, connection.transaction():
        connection.execute(f"SELECT count(*) FROM {table}")
        yield


def waits_for(connection: psycopg.Connection[tuple[object, ...]], table: str) -> bool:
    """Whether a session waits for the lock on a table with which a migration changes it."""
    sql = "SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' AND relation = %s::regclass"
    return bool(connection.execute(sql, (table,)).fetchall())


def test_an_older_and_a_newer_karrot_write_side_by_side(
    server: PostgresServer, schema: str, database: Database
) -> None:
    clock = SystemClock()
    old = PostgresEventLog(database, prepare(database, clock), clock)
    newer_database = database_of(server, schema)
    with Load(old, "old") as before:
        before.reach(20)
        opened = prepare(newer_database, clock, NEWER)
        new = PostgresEventLog(newer_database, opened, clock)
        with Load(new, "new") as after:
            before.reach(20)
            after.reach(20)
    stored = [each.event.consumer for each in stored_events(old)]
    assert before.refused == after.refused == []
    assert sorted(stored) == sorted([*before.stored, *after.stored])
    assert sorted(group_names(new)) == sorted(stored)
    assert prepare(newer_database, clock, NEWER).log_id == old.log_id
    with server.connect("karrot") as connection:
        colours = connection.execute(f"SELECT DISTINCT colour FROM {schema}.groups").fetchall()
    assert colours == [("grey",)]
    with pytest.raises(LogUnavailableError, match=f"schema version {len(NEWER)}, but this Karrot supports"):
        prepare(database, clock)
    old.close()
    new.close()


def test_a_migration_that_waits_for_a_reader_lets_the_older_karrot_commit(
    server: PostgresServer, schema: str, database: Database
) -> None:
    clock = SystemClock()
    old = PostgresEventLog(database, prepare(database, clock), clock)
    migrated: list[object] = []
    table = f"{schema}.groups"
    with Load(old, "old") as load, closing(server.connect("karrot")) as looking, held(server, table):
        load.reach(5)
        start = threading.Thread(target=lambda: migrated.append(prepare(database_of(server, schema), clock, NEWER)))
        start.start()
        for _ in range(2):  # the migration waits for a short time only, and then lets the older Karrot commit
            wait_for(lambda: waits_for(looking, table))
            load.reach(5)
        assert migrated == []
    start.join()
    assert len(migrated) == 1
    assert load.refused == []
    old.close()


def test_replicas_that_start_at_the_same_time_migrate_once(server: PostgresServer, schema: str) -> None:
    clock = SystemClock()
    opened: list[str] = []
    starts = [
        threading.Thread(target=lambda: opened.append(prepare(database_of(server, schema), clock, NEWER).log_id))
        for _ in range(4)
    ]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert len(opened) == 4
    assert len(set(opened)) == 1
    with server.connect("karrot") as connection:
        assert connection.execute(f"SELECT version FROM {schema}.schema_version").fetchall() == [(len(NEWER),)]


def test_the_time_of_the_last_webhook_becomes_log_time_and_is_not_in_the_future(database: Database) -> None:
    prepare(database, SystemClock(), MIGRATIONS[:1])
    with closing(database.open()) as connection:
        connection.execute("UPDATE log SET wall_ms = 9000000, log_ms = 5000000")
        connection.execute("INSERT INTO heard VALUES ('a minute ago', 8940000), ('set by a wrong clock', 777000000)")
        prepare(database, SystemClock())
        found = connection.execute("SELECT at_ms FROM heard ORDER BY at_ms").fetchall()
    assert found == [(4_940_000,), (5_000_000,)]


def test_an_older_karrot_finds_the_table_that_it_writes_and_its_token_is_replaced(
    server: PostgresServer, schema: str, database: Database
) -> None:
    clock = SystemClock()
    new = PostgresEventLog(database, prepare(database, clock), clock)
    with server.connect("karrot") as connection:
        connection.execute(f"UPDATE {schema}.log SET leader = 'older'")  # an older leader that was frozen
        connection.execute(f"INSERT INTO {schema}.writers (id, commits, log_ms) VALUES ('older', 1, 1)")
        assert new.lead()
        new.remember("cloudwatch", "inside", b"new")
        append_event(new)
        found = connection.execute(f"SELECT leader = 'older', leader IS NULL FROM {schema}.log").fetchall()
        assert found == [(False, False)]  # it refuses what the older one writes when it wakes up
    new.close()


def test_an_older_karrot_reads_the_events_of_a_newer_one_and_the_other_way_round(
    server: PostgresServer, schema: str, database: Database
) -> None:
    clock = SystemClock()
    prepare(database, clock, MIGRATIONS[:2])
    new = PostgresEventLog(database, prepare(database, clock), clock)
    append_event(new)
    [told] = stored_events(new)
    columns = "received_at_ms, observed_at_ms, log_time_ms, source, body, crc"
    with server.connect("karrot") as connection:
        row: Any = connection.execute(f"SELECT {columns} FROM {schema}.events WHERE age IS NULL").fetchone()
        *facts, body, crc = row
        assert crc == zlib.crc32(body, zlib.crc32(repr(tuple(facts)).encode()))  # as the older one checks it
        connection.execute(f"UPDATE {schema}.events SET summary = NULL")
    assert [(each.event, each.summary.bad) for each in stored_events(new)] == [(told.event, told.summary.bad)]
    [[recent]] = new.recent([GroupKey("prod-eu", "orders-svc")])
    assert recent.summary.total_lag == told.summary.total_lag
    new.close()
