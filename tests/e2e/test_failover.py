"""Two real replicas behind HAProxy, over a PostgreSQL with a standby: no acknowledged event is missing."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.figures import Figures
from karrot.clock import SystemClock
from karrot.eventlog.postgres.schema import MIGRATIONS
from support.burrow.recorded_bodies import warn_body
from support.eventlog.appended_events import stored_events
from support.eventlog.postgres_log import open_postgres
from support.eventlog.postgres_server import PostgresServer, running_postgres
from support.eventlog.postgres_standby import streaming_standby
from support.eventlog.saved_cursor import SavedCursor
from support.servers.faulty_proxy import faulty_proxy
from support.service.postgres_service import PostgresService, assert_all_reported, replicas_over
from support.service.posting_threads import PostingThreads, assert_nothing_is_lost
from support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SCHEMA = "karrot"  # of every replica of `replicas_over`


def use_server(replicas: Sequence[PostgresService], server: PostgresServer) -> None:
    """Let the checks read from another server."""
    for replica in replicas:
        replica.server = server


def events_of(replica: PostgresService) -> int:
    return sum(replica.stored_consumers().values())


def test_a_promotion_under_load_loses_no_acknowledged_event_with_a_synchronous_standby(
    tmp_path: Path, figures: Figures
) -> None:
    with (
        running_postgres() as primary,
        streaming_standby(primary, synchronous=True) as standby,
        replicas_over([primary, standby], tmp_path) as (proxy, replicas),
        SavedCursor([primary, standby], SCHEMA) as cursor,
    ):
        workers = [replica.workers() for replica in replicas]
        with PostingThreads(proxy) as load:
            load.reach(200)
            primary.kill()
            standby.promote()
            promoted = time.monotonic()
            load.reach(1)
            figures.add("events accepted after a promotion", time.monotonic() - promoted)
            load.reach(200)
        use_server(replicas, standby)
        assert_nothing_is_lost(replicas[0], load)
        assert_all_reported(replicas, events_of(replicas[0]))
        assert not cursor.went_back
        assert [replica.workers() for replica in replicas] == workers
        for replica in replicas:
            wait_for(replica.ready)
            assert replica.metric("karrot_events_accepted_total", source="webhook") == events_of(replica)


def test_an_event_is_not_acknowledged_before_the_synchronous_standby_has_it(tmp_path: Path) -> None:
    with (
        running_postgres() as primary,
        streaming_standby(primary, synchronous=True) as standby,
        replicas_over([primary, standby], tmp_path, count=1) as (_, [replica]),
    ):
        assert replica.post(warn_body("before")).status == 202
        standby.freeze()
        answer = replica.post(warn_body("during"))
        # If a commit of counters was waiting for the standby already, the event waits for its turn in vain.
        assert (answer.status, answer.json["code"]) in ((503, "unconfirmed"), (503, "overloaded"))
        with primary.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' "
                "AND application_name = 'karrot'"
            )
        for _ in range(3):  # the primary has stored it, but the standby has not
            assert replica.post(warn_body("refused")).status == 503
        standby.thaw()
        wait_for(lambda: replica.post(warn_body("after")).status == 202)
        wait_for(replica.ready)
        stored = replica.stored_consumers()
        assert {"before", "after"} <= set(stored)
        assert stored["during"] <= 1
        assert replica.metric("karrot_events_accepted_total", source="webhook") == sum(stored.values())


def test_after_a_promotion_that_lost_events_each_replica_shows_what_is_stored(tmp_path: Path) -> None:
    with (
        running_postgres() as primary,
        faulty_proxy(primary.port) as network,
        streaming_standby(primary, synchronous=False, port=network.port) as standby,
        replicas_over([primary, standby], tmp_path) as (_, replicas),
    ):
        first, second = replicas
        for number in range(20):
            assert replicas[number % 2].post(warn_body(f"kept-{number}")).status == 202
        wait_for(lambda: events_at(standby) == 20)
        network.swallows = True
        for number in range(10):
            assert replicas[number % 2].post(warn_body(f"lost-{number}")).status == 202
        for replica in replicas:
            assert b"lost-9" in replica.get("/api/v1/groups?limit=100").body
        primary.kill()
        standby.promote()
        use_server(replicas, standby)
        wait_for(lambda: first.post(warn_body("new-0")).status == 202)
        for number in range(1, 5):
            wait_for(lambda number=number: second.post(warn_body(f"new-{number}")).status == 202)  # type: ignore[misc]
        stored = first.stored_consumers()
        assert set(stored) == {*(f"kept-{number}" for number in range(20)), *(f"new-{number}" for number in range(5))}
        for replica in replicas:
            wait_for(lambda replica=replica: shown_groups(replica) == set(stored))  # type: ignore[misc]
        # The numbers of the lost events are given again, and the leader goes on after the last one that is stored.
        wait_for(lambda: set(range(21, 26)) <= {seq for replica in replicas for seq in replica.reported()[-5:]})


def events_at(server: PostgresServer) -> int:
    with server.connect("karrot") as connection:
        found = connection.execute(f"SELECT last_seq FROM {SCHEMA}.log").fetchone()
    assert found is not None
    return int(str(found[0]))


def shown_groups(replica: PostgresService) -> set[str]:
    return {group["consumer"] for group in replica.get("/api/v1/groups?limit=100").json["groups"]}


NEWER = """
from karrot.eventlog.postgres import schema
schema.prepare.__defaults__ = ((*schema.MIGRATIONS, "ALTER TABLE groups ADD COLUMN colour text DEFAULT 'grey'"),)
from karrot.cli import main
main()
"""
"""The next version of Karrot, whose schema has one more column."""


def test_a_rolling_upgrade_under_load_refuses_no_event(tmp_path: Path) -> None:
    with (
        running_postgres() as server,
        replicas_over([server], tmp_path) as (proxy, replicas),
        SavedCursor([server], SCHEMA) as cursor,
    ):
        with PostingThreads(proxy) as load:
            for replica in replicas:
                load.reach(100)
                assert replica.stop() == 0
                replica.program = ("-c", NEWER)
                replica.start()
                load.reach(100)
        with server.connect("karrot") as connection:
            version = connection.execute(f"SELECT version FROM {SCHEMA}.schema_version").fetchone()
            colours = connection.execute(f"SELECT DISTINCT colour FROM {SCHEMA}.groups").fetchall()
        assert (version, colours) == ((len(MIGRATIONS) + 1,), [("grey",)])
        assert load.answers[202] == sum(load.answers.values())
        assert set(load.acknowledged) <= stored_by_newer(server)
        assert_all_reported(replicas, events_at(server), changes=0)
        assert not cursor.went_back


def stored_by_newer(server: PostgresServer) -> set[str]:
    """The groups that a newer Karrot has in its log: this one refuses to open it."""
    with server.connect("karrot") as connection:
        found = connection.execute(f"SELECT convert_from(consumer, 'UTF8') FROM {SCHEMA}.groups").fetchall()
    return {str(consumer) for (consumer,) in found}


def test_a_reload_of_one_replica_keeps_the_lead_in_a_worker(tmp_path: Path) -> None:
    with running_postgres() as server, replicas_over([server], tmp_path) as (proxy, replicas):
        with PostingThreads(proxy) as load:
            load.reach(50)
            for replica in replicas:
                old = set(replica.workers())
                os.kill(replica.pid, signal.SIGHUP)
                wait_for(lambda: bool(replica.workers()) and not old & set(replica.workers()))  # noqa: B023 - used at once
            load.reach(50)
        assert_nothing_is_lost(replicas[0], load)
        assert_all_reported(replicas, events_of(replicas[0]), changes=0)


def test_the_log_of_a_promoted_standby_goes_on_with_its_times(tmp_path: Path) -> None:
    with running_postgres() as primary, streaming_standby(primary, synchronous=True) as standby:
        with replicas_over([primary, standby], tmp_path, count=1) as (_, [replica]):
            for number in range(10):
                assert replica.post(warn_body(f"before-{number}")).status == 202
            primary.kill()
            standby.promote()
            for number in range(10):
                wait_for(lambda number=number: replica.post(warn_body(f"after-{number}")).status == 202)  # type: ignore[misc]
        with open_postgres(standby, SCHEMA, SystemClock()) as log:
            times = [event.log_time_ms for event in stored_events(log)]
        assert len(times) >= 20
        assert times == sorted(times)
