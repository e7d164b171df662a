"""The committer on a real server: what cannot be stored hurts no neighbour, and a lost answer is unconfirmed."""

import threading
from collections import Counter as Sums
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count
from random import Random
from typing import Any, NamedTuple, NoReturn

import pytest
from structlog.testing import capture_logs

from karrot import telemetry
from karrot.burrow.payload import to_wire
from karrot.clock import LogTime, SystemClock
from karrot.event import GroupKey
from karrot.eventlog.base import Appended, Limits, LogUnavailableError, OverloadedError, UnconfirmedError
from karrot.eventlog.next_group_state import Arrival, summarize
from karrot.eventlog.postgres import PostgresEventLog
from karrot.eventlog.postgres import schema as schemas
from karrot.eventlog.postgres.connections import Database, Sessions
from karrot.eventlog.postgres.group_commit import PostgresCommitter
from karrot.eventlog.postgres.schema import prepare
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.eventlog.transaction_rules import LOG_END_BYTES
from karrot.eventlog.writer import Job, WriteBuffer
from support.burrow.lag_events import make_event
from support.eventlog.appended_events import append_event, group_names, stored_events
from support.eventlog.postgres_log import open_postgres
from support.eventlog.postgres_server import PostgresServer
from support.servers.faulty_proxy import faulty_proxy
from support.waiting import wait_for

from .conftest import OpenPostgres

COUNTED = "karrot_x_total"
MOST_GROUPS = 10


class Parts(NamedTuple):
    committer: PostgresCommitter
    buffer: WriteBuffer


@pytest.fixture
def parts(database: Database) -> Iterator[Parts]:
    clock, buffer = SystemClock(), WriteBuffer()
    opened = prepare(database, clock)
    time = LogTime(clock, opened.anchor)
    sessions = Sessions(database)
    committer = PostgresCommitter(sessions, opened.log_id, time, buffer, Limits(max_consumers=MOST_GROUPS))
    yield Parts(committer, buffer)
    committer.close()
    sessions.close()


def storing(consumer: str, *, later_ms: int = 0, **overrides: Any) -> Job[Appended]:
    event = make_event(consumer=consumer, **overrides)
    now_ms = SystemClock().wall_ms() + later_ms
    key, summary = GroupKey(event.cluster, consumer), summarize(event, now_ms)
    arrived = Arrival(key, event, to_wire(make_event()), now_ms, now_ms, summary, 0)
    return Job(arrived)


def failing(error: Exception) -> Job[Any]:
    def fail(_transaction: object) -> NoReturn:
        raise error

    return Job(fail)


def outcomes(committer: PostgresCommitter, jobs: Sequence[Job[Any]]) -> list[str | None]:
    committer.commit(lambda: jobs)
    for job in jobs:
        job.finish()
    return [None if job.error is None else str(job.error) for job in jobs]


def counted(log: PostgresEventLog, name: str) -> float:
    return sum(each.value for each in log.counters() if each.name == name)


def test_a_value_that_cannot_be_stored_hurts_no_neighbour(parts: Parts, open_postgres: OpenPostgres) -> None:
    parts.buffer.count(COUNTED, 7, {})
    jobs = [
        storing("a"),
        storing("beyond 64 bits", observed_at_ms=1 << 63),
        storing("\ud800 half of a pair"),
        storing("with \0 inside"),
        failing(ValueError("impossible")),
        failing(TypeError("unheard of")),
        storing("b"),
    ]
    with capture_logs() as logged:
        said = outcomes(parts.committer, jobs)
    assert said == [
        None,
        "cannot be written: bigint out of range",
        "cannot be written: 'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed",
        None,
        "cannot be written: impossible",
        "cannot be written: unheard of",
        None,
    ]
    log = open_postgres()
    assert group_names(log) == ["a", "b", "with \0 inside"]
    assert [log.event(job.result.seq) is not None for job in jobs if job.stored] == [True, True, True]
    assert counted(log, telemetry.EVENTS_ACCEPTED.name) == 3
    assert counted(log, COUNTED) == 7
    assert parts.committer.failure is None
    assert "value_not_stored" in {each.get("code") for each in logged}


def test_a_counter_that_cannot_be_stored_hurts_no_event_and_is_dropped(
    parts: Parts, open_postgres: OpenPostgres
) -> None:
    parts.buffer.count(COUNTED, 1, {"reason": Random(1).randbytes(3_000).hex()})  # too long for an index of PostgreSQL
    with capture_logs() as logged:
        said = outcomes(parts.committer, [storing("a"), failing(ValueError("impossible")), storing("b")])
    assert said == [None, "cannot be written: impossible", None]
    parts.buffer.count(COUNTED, 2, {"reason": "short"})
    assert outcomes(parts.committer, [storing("c")]) == [None]
    log = open_postgres()
    assert group_names(log) == ["a", "b", "c"]
    assert counted(log, COUNTED) == 2
    assert parts.committer.failure is None
    assert "value_not_stored" in {each.get("code") for each in logged}


def test_many_groups_in_one_commit_replace_the_silent_ones_like_in_sqlite(
    parts: Parts, server: PostgresServer, schema: str
) -> None:
    clock = SystemClock()
    sqlite = MemoryEventLog(clock, max_consumers=MOST_GROUPS)

    def commit(*consumers: str, **overrides: Any) -> list[list[bool]]:
        jobs = [[storing(name, **overrides) for name in consumers] for _ in range(2)]
        parts.committer.commit(lambda: jobs[0])
        for job in jobs[1]:
            sqlite_job = sqlite._writer.begin(job.work)
            job.result = sqlite_job.wait()
        return [[job.result.tracked for job in each] for each in jobs]

    names = [f"g{number:02}" for number in range(MOST_GROUPS)]
    first = commit(*names, "one too many", names[3])
    assert first[0] == first[1] == [*[True] * MOST_GROUPS, False, True]
    gone = commit(*names[:4], status_text="NOTFOUND", incident_id=None)
    assert gone[0] == gone[1] == [True] * 4
    # Four groups are deleted, and one of them returns in this commit: so there is room for three new ones.
    mixed = commit("new-1", names[0], *(f"new-{number}" for number in range(2, 9)), names[7])
    assert mixed[0] == mixed[1] == [True, True, True, True, *[False] * 5, True]
    with open_postgres(server, schema, clock) as log:
        assert log.size().groups == MOST_GROUPS
        assert group_names(log) == sorted([*names[4:], names[0], "new-1", "new-2", "new-3"])
        with server.connect("karrot") as connection:
            assert connection.execute(f"SELECT count(*) FROM {schema}.groups").fetchall() == [(MOST_GROUPS,)]


@pytest.mark.parametrize("first", [False, True], ids=["after the event", "before the event"])
def test_the_log_counts_the_bytes_of_histories_that_are_forgotten_in_the_commit_of_an_event(
    parts: Parts, server: PostgresServer, schema: str, *, first: bool
) -> None:
    assert outcomes(parts.committer, [storing("a")]) == [None]
    forgetting = Job(lambda transaction: transaction.forget_log_ends(1 << 60))
    later = storing("a", later_ms=10_000)  # when the history is read again
    jobs = [forgetting, later] if first else [later, forgetting]
    assert outcomes(parts.committer, jobs) == [None, None]
    assert forgetting.result > 0
    with server.connect("karrot") as connection:
        stored = f"(SELECT coalesce(sum({LOG_END_BYTES}), 0) FROM {schema}.log_ends)"
        found = connection.execute(f"SELECT log_end_bytes = {stored} FROM {schema}.log").fetchall()
    assert found == [(True,)]


def test_a_note_that_cannot_be_stored_hurts_no_neighbour(open_postgres: OpenPostgres) -> None:
    log = open_postgres()
    with capture_logs(), pytest.raises(LogUnavailableError, match="cannot be written"):
        log.remember("a reporter", "a name with \0", b"value")
    log.remember("a reporter", "a name", b"value")
    assert log.recall("a reporter", "a name") == b"value"


def test_a_connection_that_the_server_has_closed_is_replaced_before_the_next_commit(
    server: PostgresServer, schema: str
) -> None:
    with open_postgres_named(server, schema) as log:
        append_event(log)
        list(log.read(0))
        for _ in range(3):
            end_sessions(server, schema)
            assert append_event(log).tracked
            assert len(log.read(0)) > 1


@contextmanager
def open_postgres_named(server: PostgresServer, schema: str, **options: Any) -> Iterator[PostgresEventLog]:
    """A log whose sessions have the schema as the name of their application, so that `end_sessions` finds them."""
    with open_postgres(server, schema, SystemClock(), application_name=schema, **options) as log:
        yield log


def end_sessions(server: PostgresServer, schema: str) -> int:
    with server.connect() as connection:
        sql = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s"
        return connection.execute(sql, (schema,)).rowcount


class LosingCommit:
    """Loses one chunk of the next commit: the request or the answer of its first or of its second round trip.

    Other connections lose nothing.
    """

    def __init__(self, *, second: bool, answer: bool) -> None:
        self._mark = b"COMMIT" if second else b"FOR UPDATE"
        self._answer = answer
        self._asking: int | None = None
        self.has_lost = False

    def __call__(self, to_server: bool, data: bytes, connection: int) -> bool:  # noqa: FBT001 - the proxy calls it
        if to_server and self._mark in data and self._asking is None:
            self._asking = connection
        if connection == self._asking and to_server != self._answer and not self.has_lost:
            self.has_lost = True
            return False
        return True


LOST = pytest.mark.parametrize(
    ("second", "answer"),
    [(False, False), (False, True), (True, False), (True, True)],
    ids=["the lock's request", "the lock's answer", "the commit's request", "the commit's answer"],
)


@LOST
@pytest.mark.parametrize("away", [False, True], ids=["", "and the server is away"])
def test_a_commit_whose_connection_is_lost_is_unconfirmed_and_no_event_is_stored_twice(
    server: PostgresServer, schema: str, *, second: bool, answer: bool, away: bool
) -> None:
    is_stored = second and answer
    with faulty_proxy(server.port) as proxy, open_postgres(server, schema, SystemClock(), port=proxy.port) as log:
        append_event(log, consumer="before")
        log.count(COUNTED, 5)
        loses = LosingCommit(second=second, answer=answer)
        proxy.passes = lambda *chunk: loses(*chunk) and not (away and loses.has_lost)
        with pytest.raises(LogUnavailableError) as caught:
            append_event(log, consumer="during")
        assert isinstance(caught.value, UnconfirmedError) == second
        assert log.writable() is not None
        proxy.passes = lambda _to_server, _data, _connection: True
        wait_for(lambda: log.writable() is None)
        append_event(log, consumer="after")
        names = ["before", *(["during"] if is_stored else []), "after"]
        assert [stored.event.consumer for stored in stored_events(log)] == names
        assert counted(log, telemetry.EVENTS_ACCEPTED.name) == len(names)
        assert counted(log, COUNTED) == (10 if is_stored else 5)  # nobody knew, so it is counted again


@contextmanager
def frozen_in_a_commit(server: PostgresServer, schema: str) -> Iterator[Callable[[], bool]]:
    """Hold the lock on the log like a process that was frozen between two messages of its commit.

    Yields a function that tells whether its session still lives.
    """
    with closing(server.connect("karrot")) as connection:
        pid = connection.info.backend_pid
        connection.execute(f"SET search_path = {schema}")
        connection.execute("SET idle_in_transaction_session_timeout = '1s'")
        connection.execute("BEGIN")
        connection.execute("SELECT FROM log FOR UPDATE")
        raw = connection.pgconn
        raw.enter_pipeline_mode()
        raw.send_query_params(b"UPDATE log SET groups = groups", None)
        raw.send_flush_request()
        raw.flush()
        with server.connect() as other:
            sql = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"

            def lives() -> bool:
                return other.execute(sql, (pid,)).fetchone() == (1,)

            yield lives


@pytest.fixture
def _frozen_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """End the session of a frozen commit after a second, not after four."""
    sql = schemas._END_FROZEN_COMMITS
    assert "'4 s'" in sql
    monkeypatch.setattr(schemas, "_END_FROZEN_COMMITS", sql.replace("'4 s'", "'1 s'"))


@pytest.mark.usefixtures("_frozen_for_a_second")
def test_the_lock_of_a_process_that_was_frozen_in_a_commit_is_taken_from_it(
    server: PostgresServer, schema: str
) -> None:
    with capture_logs() as logs, open_postgres(server, schema, SystemClock()) as log:
        append_event(log)
        with frozen_in_a_commit(server, schema) as lives:
            wait_for(lambda: flushed(log))
            assert not lives()
        append_event(log)
        assert [event.seq for event in stored_events(log)] == [1, 2]
    assert [each["sessions"] for each in logs if each.get("code") == "sessions_ended"] == [1]


@pytest.mark.usefixtures("_frozen_for_a_second")
def test_a_process_can_take_the_lead_from_one_that_was_frozen_in_a_commit(server: PostgresServer, schema: str) -> None:
    with open_postgres(server, schema, SystemClock()) as log, frozen_in_a_commit(server, schema) as lives:
        wait_for(log.lead)
        assert not lives()


@pytest.mark.parametrize("ends", [8, pytest.param(20, marks=pytest.mark.deep)])
def test_sessions_that_end_at_any_moment_lose_no_event_and_no_count(
    server: PostgresServer, schema: str, ends: int
) -> None:
    outcomes = Sums[str]()
    stored: set[str] = set()
    refused: set[str] = set()
    tried: list[str] = []
    enough = threading.Event()
    rng = Random(7)

    def append_all(log: PostgresEventLog, writer: int) -> None:
        numbers = count()
        while not enough.is_set():
            name = f"{writer}-{next(numbers)}"
            log.count(COUNTED)
            tried.append(name)
            try:
                append_event(log, consumer=name)
            except UnconfirmedError:
                outcomes["unconfirmed"] += 1
            except (LogUnavailableError, OverloadedError):
                refused.add(name)
                wait_for(lambda: flushed(log))
            else:
                stored.add(name)

    with ExitStack() as opened:
        logs = [opened.enter_context(open_postgres_named(server, schema)) for _ in range(3)]
        threads = [
            threading.Thread(target=append_all, args=(log, 2 * number + turn))
            for number, log in enumerate(logs)
            for turn in range(2)
        ]
        for thread in threads:
            thread.start()
        for _ in range(ends):
            outcomes["ended"] += end_sessions(server, schema)
            goal = len(stored) + rng.randrange(12)
            wait_for(lambda goal=goal: len(stored) > goal, every_s=0.001)  # type: ignore[misc]
        enough.set()
        for thread in threads:
            thread.join()
        for log in logs:
            wait_for(lambda log=log: flushed(log))  # type: ignore[misc]
        found = [each.event.consumer for each in stored_events(logs[0])]
        assert outcomes["ended"] >= len(logs)
        assert stored <= set(found)
        assert not refused & set(found)
        assert len(found) == len(set(found)) <= len(stored) + outcomes["unconfirmed"]
        assert [each.seq for each in stored_events(logs[0])] == list(range(1, len(found) + 1))
        assert counted(logs[0], telemetry.EVENTS_ACCEPTED.name) == len(found)
        assert counted(logs[0], COUNTED) >= len(tried)


def flushed(log: PostgresEventLog) -> bool:
    with suppress(LogUnavailableError, OverloadedError):
        log.flush()
        return True
    return False
