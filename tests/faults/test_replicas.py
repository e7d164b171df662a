"""Two replicas over one PostgreSQL: one leads, and another one goes on when it is killed, frozen or cut off."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPException
from pathlib import Path

import psycopg
import pytest

from support.burrow.recorded_bodies import warn_body
from support.eventlog.postgres_server import PostgresServer, running_postgres, schema_name
from support.eventlog.saved_cursor import SavedCursor
from support.servers.faulty_proxy import faulty_proxy
from support.service import quick_lead
from support.service.postgres_service import BATCH, PostgresService, assert_all_reported
from support.service.posting_threads import PostingThreads, assert_nothing_is_lost
from support.waiting import wait_for

Start = Callable[..., PostgresService]


class QuickReplica(PostgresService):
    program = (quick_lead.__file__,)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as running:
        yield running


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> str:
    return schema_name(request.node.name)


@pytest.fixture
def start(server: PostgresServer, schema: str, tmp_path: Path) -> Iterator[Start]:
    """Start a replica. The first one leads when this returns."""
    with ExitStack() as started:

        def start_one(name: str, **settings: str | int) -> PostgresService:
            replica = QuickReplica(tmp_path / name, server, schema, **settings)  # type: ignore[arg-type]
            started.enter_context(replica)
            if name == "first":
                wait_for(lambda: replica.terms() == 1)
            return replica

        yield start_one


def test_another_replica_leads_after_a_kill(start: Start, server: PostgresServer, schema: str) -> None:
    first, second = start("first"), start("second")
    with SavedCursor([server], schema) as cursor:
        with PostingThreads(second) as load:
            load.reach(100)
            first.kill()
            wait_for(lambda: second.terms() == 1)
            load.reach(50)
        assert_nothing_is_lost(second, load)
        assert_all_reported([first, second], sum(second.stored_consumers().values()))
    assert not cursor.went_back
    assert set(load.answers) == {202}


def test_a_frozen_leader_is_replaced_and_sends_at_most_one_batch_when_it_wakes(
    start: Start, server: PostgresServer, schema: str
) -> None:
    first, second = start("first"), start("second")
    with SavedCursor([server], schema) as cursor:
        with PostingThreads(second) as load:
            load.reach(100)
            first.freeze()
            try:
                wait_for(lambda: second.terms() == 1)
                load.reach(100)
            finally:
                before = len(first.reported())
                first.thaw()
            load.reach(100)
        wait_for(lambda: b"does not lead any more" in first.said.read_bytes())
        assert len(first.reported()) - before <= BATCH
        assert_nothing_is_lost(second, load)
        assert_all_reported([first, second], sum(second.stored_consumers().values()))
    assert not cursor.went_back
    wait_for(lambda: first.post(warn_body("after")).status == 202)
    wait_for(first.ready)
    assert first.terms() == 1


class Answers:
    """Asks one replica again and again, in a thread for each request."""

    def __init__(self, replica: PostgresService) -> None:
        self.statuses: dict[str, list[int]] = {}
        self._over = threading.Event()
        requests: dict[str, Callable[[], int]] = {
            "post": lambda: replica.post(warn_body("asked")).status,
            **{path: self._get(replica, path) for path in ("/metrics", "/api/v1/groups", "/readyz", "/healthz")},
        }
        self._threads = [threading.Thread(target=self._ask, args=each) for each in requests.items()]

    def __enter__(self) -> "Answers":  # noqa: PYI034
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def are_well(self) -> bool:
        """Whether the newest event was accepted, and the replica is ready."""
        return (self.statuses["post"][-1], self.statuses["/readyz"][-1]) == (202, 200)

    @staticmethod
    def _get(replica: PostgresService, path: str) -> Callable[[], int]:
        return lambda: replica.get(path).status

    def _ask(self, name: str, ask: Callable[[], int]) -> None:
        statuses = self.statuses[name] = []
        while not self._over.wait(0.05):
            try:
                statuses.append(ask())
            except (OSError, HTTPException):
                statuses.append(0)


def test_a_leader_whose_packets_are_lost_answers_and_is_replaced(
    start: Start, server: PostgresServer, schema: str
) -> None:
    with faulty_proxy(server.port) as proxy:
        first, second = start("first", port=proxy.port), start("second")
        [worker] = first.workers()
        with SavedCursor([server], schema) as cursor, Answers(first) as answers:
            wait_for(lambda: len(answers.statuses["post"]) > 10)
            threads = first.threads()
            proxy.swallows = True
            wait_for(lambda: second.terms() == 1)
            asked = {name: len(statuses) for name, statuses in answers.statuses.items()}
            wait_for(lambda: all(len(answers.statuses[name]) > count + 10 for name, count in asked.items()))
            assert first.threads() <= threads + 4  # each worker has one thread that connects
            proxy.swallows = False
            wait_for(answers.are_well)
        assert not cursor.went_back
        assert set(answers.statuses["post"]) == {202, 503}
        assert set(answers.statuses["/metrics"]) == set(answers.statuses["/api/v1/groups"]) == {200}
        assert set(answers.statuses["/healthz"]) == {200}
        assert first.workers() == [worker]
        assert_all_reported([first, second], sum(second.stored_consumers().values()))


def code_of(replica: PostgresService, consumer: str) -> str:
    """The code of the answer to a post, or the empty text for 202."""
    answer = replica.post(warn_body(consumer))
    return "" if answer.status == 202 else str(answer.json["code"])


def take_free_connections(server: PostgresServer, taken: ExitStack) -> None:
    """Take every connection that the server has left."""
    with suppress(psycopg.OperationalError):
        while True:
            taken.enter_context(closing(server.connect()))


def test_events_are_accepted_while_the_server_has_no_connection_left(start: Start, server: PostgresServer) -> None:
    replica = start("first")
    assert code_of(replica, "before") == ""
    assert replica.get("/metrics").status == 200
    [worker] = replica.workers()
    threads = replica.threads()
    with ExitStack() as taken:
        own = taken.enter_context(closing(server.connect()))
        take_free_connections(server, taken)
        for number in range(5):
            assert code_of(replica, f"during-{number}") == ""
            assert replica.get("/metrics").status == 200

        replica.freeze()  # or it would connect again before its connections have all ended
        own.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'karrot'")
        take_free_connections(server, taken)
        replica.thaw()
        wait_for(lambda: code_of(replica, "tried") == "log_unavailable")
        for _ in range(20):
            assert code_of(replica, "refused") == "log_unavailable"
            assert replica.get("/healthz").status == 200
            assert b'consumer="before"' in replica.get("/metrics").body
        assert replica.threads() <= threads + 2
    wait_for(replica.ready)
    wait_for(lambda: code_of(replica, "after") == "")
    assert replica.workers() == [worker]
    stored = set(replica.stored_consumers())
    assert stored >= {"before", "after", *(f"during-{number}" for number in range(5))}
    assert "refused" not in stored


def test_a_replica_goes_on_by_itself_after_the_server_was_stopped_and_started(
    tmp_path: Path,
) -> None:
    with running_postgres() as server, PostgresService(tmp_path / "a", server, "s") as replica:
        wait_for(lambda: replica.terms() == 1)
        [worker] = replica.workers()
        with PostingThreads(replica) as load:
            load.reach(50)
            threads = replica.threads()
            for mode in ("fast", "immediate"):
                server.stop(mode)
                load.reach(20, status=503)
                assert replica.threads() <= threads + 2
                assert code_of(replica, "refused") == "log_unavailable"
                assert replica.get("/readyz").status == 503
                server.start()
                load.reach(20)
                wait_for(replica.ready)
        assert replica.workers() == [worker]
        wait_for(lambda: len(set(replica.reported())) == sum(replica.stored_consumers().values()))
        stored = replica.stored_consumers()
        assert set(load.acknowledged) <= set(stored)
        assert set(stored.values()) == {1}
        assert "refused" not in stored
        assert replica.metric("karrot_events_accepted_total", source="webhook") == len(stored)
