"""What an event log in PostgreSQL answers while its server is stopped or frozen, and what it tells of the server."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from karrot.clock import Clock, SystemClock
from karrot.event import GroupKey
from karrot.eventlog.base import Cursor, LogUnavailableError, ReporterState
from karrot.eventlog.postgres import PostgresEventLog, store
from karrot.eventlog.postgres.connections import Database, DatabaseUrl, Session
from karrot.eventlog.postgres.schema import prepare
from support.eventlog.appended_events import append_event
from support.eventlog.postgres_server import (
    DATABASE,
    PASSWORD,
    PostgresServer,
    postgres_home,
    running_postgres,
    schema_name,
)
from support.manual_clock import ManualClock
from support.waiting import wait_for

OpenLog = Callable[..., PostgresEventLog]


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that the tests of this module may stop."""
    with running_postgres(wal_level="replica") as server:
        yield server


@pytest.fixture
def open_log(own_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[OpenLog]:
    schema = schema_name(request.node.name)
    with contextlib.ExitStack() as opened:

        def open_one(url: str | None = None, clock: Clock | None = None, **options: object) -> PostgresEventLog:
            clock = clock or SystemClock()
            database = Database(DatabaseUrl.parse(url or own_server.url(schema)), lambda: PASSWORD)
            log = PostgresEventLog(database, prepare(database, clock), clock, **options)  # type: ignore[arg-type]
            opened.callback(log.close)
            return log

        yield open_one


@contextlib.contextmanager
def stopped(server: PostgresServer) -> Iterator[None]:
    server.stop("fast")
    try:
        yield
    finally:
        server.start()


def is_readable(log: PostgresEventLog) -> bool:
    try:
        return log.event(1) is not None
    except LogUnavailableError:
        return False


def test_the_newest_known_state_is_answered_with_its_age(
    own_server: PostgresServer, open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_READ_AGAIN_S", 0.2)
    log = open_log(name="one")
    log.lead()
    append_event(log, consumer="orders")
    log.save_reporter(ReporterState("stdout", Cursor(log.log_id, 1)))
    known = (log.live(), log.heard().keys(), log.reporters(), log.size(), log.leader(), log.database())
    assert log.memory_age_ms() is None
    with stopped(own_server):
        assert (log.live(), log.heard().keys(), log.reporters(), log.size(), log.leader(), log.database()) == known
        assert log.group(known[0][0].key) == known[0][0]
        with pytest.raises(LogUnavailableError):  # another replica may have stored it
            log.group(GroupKey("prod-eu", "unknown"))
        age_ms = log.memory_age_ms()
        assert age_ms is not None
        wait_for(lambda: (log.memory_age_ms() or 0) > age_ms)
        assert "PostgreSQL" in (log.writable() or "")
    wait_for(lambda: log.memory_age_ms() is None)  # without a read: a health check alone must become well again
    wait_for(lambda: is_readable(log))
    assert log.live() == known[0]


def test_what_is_known_is_not_answered_for_longer_than_a_group_is_shown(
    own_server: PostgresServer, open_log: OpenLog
) -> None:
    clock = ManualClock()
    log = open_log(clock=clock, stale_after_ms=3_000)
    append_event(log, consumer="orders")
    reads: Sequence[Callable[[], object]] = (
        log.live,
        lambda: log.group(GroupKey("prod-eu", "orders")),
        log.heard,
        log.counters,
        log.size,
    )
    for read in reads:
        assert read()
    with stopped(own_server):
        for read in reads:
            assert read()
        clock.advance(3_000)
        assert all(map(answers, reads))
        clock.advance(1)
        assert not any(map(answers, reads))  # not an empty list, which would look as if all groups were gone
    wait_for(lambda: answers(log.live))
    append_event(log, consumer="orders")
    assert [state.key.consumer for state in log.live()] == ["orders"]


def answers(read: Callable[[], object]) -> bool:
    try:
        read()
    except LogUnavailableError:
        return False
    return True


def test_a_worker_without_requests_has_a_state_to_answer(own_server: PostgresServer, open_log: OpenLog) -> None:
    append_event(open_log(), consumer="orders")
    silent = open_log(name="two")
    wait_for(lambda: len(silent._known) == 6)
    with stopped(own_server):
        assert [state.key.consumer for state in silent.live()] == ["orders"]
        assert silent.size().last_seq == 1
        with pytest.raises(LogUnavailableError):
            silent.event(1)


def test_only_the_first_read_of_a_frozen_server_waits(
    own_server: PostgresServer, open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    append_event(log, consumer="orders")
    assert is_readable(log)
    waits: list[float] = []
    get = log._sessions._pool.getconn

    def counted(timeout: float) -> Session:
        if threading.current_thread() is threading.main_thread():
            waits.append(timeout)
        return get(timeout)

    monkeypatch.setattr(log._sessions._pool, "getconn", counted)
    own_server.freeze()
    try:
        for _ in range(20):
            with pytest.raises(LogUnavailableError):
                log.event(1)
        assert len(waits) <= 1
    finally:
        own_server.thaw()
    wait_for(lambda: is_readable(log))
    assert log.memory_age_ms() is None


def test_threads_without_a_connection_do_not_wait_longer(own_server: PostgresServer, open_log: OpenLog) -> None:
    log = open_log()
    failed: list[str] = []

    def read() -> None:
        with pytest.raises(LogUnavailableError) as caught:
            log.event(1)
        failed.append(str(caught.value))

    own_server.freeze()  # before the pool opens a connection with a process that freeze does not know
    log._sessions._pool.drain()
    try:
        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        own_server.thaw()
    assert len(failed) == 8
    assert all("PostgreSQL" in reason for reason in failed)  # the pool's own attempt can fail first, with its reason


def test_the_leader_is_named_while_it_holds_the_lock(own_server: PostgresServer, open_log: OpenLog) -> None:
    one, two = open_log(name="one"), open_log(name="two")
    assert (one.leader(), one.replica, two.replica) == (None, "one", "two")
    assert one.lead()
    assert (one.leader(), two.leader()) == ("one", "one")
    with own_server.connect(DATABASE) as connection:  # a killed process says nothing
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    wait_for(lambda: two.leader() is None)
    assert two.lead()
    assert one.leader() == "two"


def test_the_leader_gets_no_note_from_memory(own_server: PostgresServer, open_log: OpenLog) -> None:
    one, two = open_log(), open_log()
    assert one.lead()
    one.remember("cloudwatch", "last", b"7")
    assert one.recall("cloudwatch", "last") == two.recall("cloudwatch", "last") == b"7"
    with stopped(own_server):
        assert two.recall("cloudwatch", "last") == b"7"
        if one.leads():
            with pytest.raises(LogUnavailableError):
                one.recall("cloudwatch", "last")


def test_the_server_and_its_standbys_are_described(own_server: PostgresServer, open_log: OpenLog) -> None:
    log = open_log()
    status = log.database()
    assert status.version.startswith(own_server.run("postgres", "--version").split()[2].partition(".")[0])
    assert (status.host, status.encrypted, status.synchronous_commit) == ("127.0.0.1", False, "on")
    assert 0 < status.connections < status.max_connections == 57
    assert status.standby_lag_seconds == {}
    with postgres_home() as home:
        standby = PostgresServer(home, own_server.bin)
        standby.follow(own_server)
        standby.start()
        try:
            wait_for(lambda: bool(log.database().standby_lag_seconds), every_s=0.1)
            append_event(log, consumer="orders")
            [(name, seconds)] = (log.database().standby_lag_seconds or {}).items()
            assert (name, 0 <= seconds < 60) == ("standby", True)
            with own_server.connect(DATABASE) as connection:
                connection.execute(f"CREATE ROLE plain LOGIN PASSWORD '{PASSWORD}'")
                connection.execute(f"GRANT CREATE ON DATABASE {DATABASE} TO plain")
            plain = open_log(own_server.url("plain").replace("://karrot@", "://plain@"))
            assert plain.database().standby_lag_seconds is None
            assert plain.database().connections > 0
        finally:
            standby.stop()
