"""One process leads. What it writes after it has lost the lead is refused, and it sends no second batch."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from karrot.clock import Clock, SystemClock
from karrot.delivery import Delivery
from karrot.eventlog.base import Cursor, LogUnavailableError, ReporterState
from karrot.eventlog.postgres import PostgresEventLog, leader_lock
from karrot.eventlog.postgres.group_commit import NotLeadingError
from karrot.reporters.base import Unreported
from support.eventlog.appended_events import append_event
from support.eventlog.postgres_log import open_postgres
from support.eventlog.postgres_server import PostgresServer
from support.manual_clock import ManualClock
from support.servers.faulty_proxy import faulty_proxy
from support.service.quick_lead import halved
from support.waiting import wait_for

STALE_MS = 300_000

Open = Callable[..., PostgresEventLog]


@pytest.fixture
def open_replica(server: PostgresServer, schema: str) -> Iterator[Open]:
    """Open the log like another replica, with connections of its own."""
    with ExitStack() as opened:

        def open_one(clock: Clock | None = None, **options: Any) -> PostgresEventLog:
            return opened.enter_context(open_postgres(server, schema, clock or SystemClock(), **options))

        yield open_one


def end_the_leaders_session(server: PostgresServer) -> None:
    """Let the server end the session with the lock, without the leader's help."""
    with server.connect("karrot") as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )


def leaders_writes(log: PostgresEventLog) -> Sequence[Callable[[], object]]:
    return (
        lambda: log.save_reporter(ReporterState("stdout", Cursor(log.log_id, 1))),
        lambda: log.remember("cloudwatch", "inside", b"late"),
        log.expire,
        log.prune,
    )


def assert_refused(log: PostgresEventLog) -> None:
    for write in leaders_writes(log):
        with pytest.raises(NotLeadingError, match="another replica leads now"):
            write()


def test_what_a_process_writes_after_it_lost_the_lead_is_refused(
    server: PostgresServer, open_replica: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    old, new = (open_replica(clock, name=name, stale_after_ms=STALE_MS) for name in ("old", "new"))
    append_event(old)
    clock.advance(STALE_MS + 1)
    append_event(old, consumer="fresh")
    assert old.lead()
    assert not new.lead()
    end_the_leaders_session(server)
    wait_for(new.lead)
    new.save_reporter(ReporterState("stdout", Cursor(new.log_id, 2)))
    new.remember("cloudwatch", "inside", b"new")
    with monkeypatch.context() as frozen:  # between the question and the write
        frozen.setattr(old._leader, "leads", lambda: True)
        frozen.setattr(old._leader, "resign", lambda: None)
        assert_refused(old)
    assert not old.leads()  # it asks before it answers
    assert_refused(old)
    new.resign()
    assert_refused(old)
    assert new.cursor("stdout") == Cursor(new.log_id, 2)
    assert new.recall("cloudwatch", "inside") == b"new"
    append_event(old)  # events are not the leader's
    assert old.lead()
    assert old.expire() == 0
    clock.advance(STALE_MS + 1)
    assert old.expire() == 2


def test_a_process_that_never_led_writes_nothing_for_a_leader(open_replica: Open) -> None:
    clock = ManualClock()
    leader, other = open_replica(clock), open_replica(clock)
    append_event(leader)
    clock.advance(STALE_MS + 1)
    assert leader.lead()
    assert_refused(other)


def test_a_process_that_does_not_lead_remembers_the_time_of_a_scrape(open_replica: Open) -> None:
    leader, other = open_replica(), open_replica()
    assert leader.lead()
    other.remember_soon("prometheus", "scraped", b"1")
    other.flush()
    assert leader.recall("prometheus", "scraped") == b"1"


def test_the_lead_is_kept_through_idle_times_and_given_up_at_once(open_replica: Open) -> None:
    leader, other = open_replica(name="a"), open_replica(name="b")
    assert leader.lead()
    assert leader.leader() == other.leader() == "a"
    leader.resign()
    assert not leader.leads()
    assert other.lead()
    assert leader.leader() == "b"
    assert not leader.lead()


@pytest.fixture
def _twice_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in halved().items():
        monkeypatch.setattr(leader_lock, name, value)


@pytest.mark.usefixtures("_twice_as_fast")
def test_a_leader_that_gets_no_answer_stops_to_lead_before_another_one_leads(
    server: PostgresServer, schema: str, open_replica: Open
) -> None:
    other = open_replica()
    both_led = threading.Event()
    over = threading.Event()
    with faulty_proxy(server.port) as proxy, open_postgres(server, schema, SystemClock(), port=proxy.port) as leader:

        def watch() -> None:
            while not over.wait(0.01):
                if other.leads() and leader.leads():
                    both_led.set()

        assert leader.lead()
        watcher = threading.Thread(target=watch)
        watcher.start()
        proxy.swallows = True
        wait_for(lambda: not leader.leads())
        assert not leader.lead()
        wait_for(other.lead)
        proxy.swallows = False
        wait_for(lambda: leader.writable() is None)
        assert not leader.lead()
        over.set()
        watcher.join()
    assert not both_led.is_set()


class HeldReporter:
    """A destination whose first report does not return until it is released, as in a process that was frozen."""

    every_s = 0.0

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.reached = threading.Event()
        self.released = threading.Event()

    def report(self, events: Unreported) -> None:
        self.batches.append([event.seq for event in events])
        self.reached.set()
        assert self.released.wait(30)

    def seen(self) -> list[int]:
        return [seq for batch in self.batches for seq in batch]

    def close(self) -> None:
        """Nothing."""


@contextmanager
def delivering(log: PostgresEventLog, reporter: HeldReporter) -> Iterator[None]:
    delivery = Delivery(log, {"held": lambda: reporter}, SystemClock())
    delivery.start()
    yield
    reporter.released.set()
    delivery.stop()


def test_a_leader_that_was_frozen_during_a_report_sends_one_batch_and_moves_no_cursor(
    server: PostgresServer, open_replica: Open
) -> None:
    first, second = open_replica(), open_replica()
    frozen, free = HeldReporter(), HeldReporter()
    free.released.set()
    append_event(first)
    with delivering(first, frozen):
        assert frozen.reached.wait(60)
        end_the_leaders_session(server)
        with delivering(second, free):
            wait_for(lambda: free.batches == [[1]])
            for _ in range(3):
                append_event(second)
            wait_for(lambda: free.seen() == [1, 2, 3, 4])
            frozen.released.set()
            wait_for(lambda: not first.leads())
            append_event(second)
            wait_for(lambda: free.seen() == [1, 2, 3, 4, 5])
            wait_for(lambda: second.cursor("held") == Cursor(second.log_id, 5))
        # The other one has resigned, so the first one leads again, with new reporters and the saved cursor.
        append_event(second)
        wait_for(lambda: frozen.batches == [[1], [6]])


def test_a_lead_whose_notes_cannot_be_read_is_given_up_and_taken_again(server: PostgresServer, schema: str) -> None:
    reporter = HeldReporter()
    reporter.released.set()
    with faulty_proxy(server.port) as proxy, open_postgres(server, schema, SystemClock(), port=proxy.port) as log:
        append_event(log)

        def build() -> HeldReporter:
            if not reporter.reached.is_set():
                reporter.reached.set()
                proxy.cut()
                proxy.passes = lambda _to_server, _data, _connection: False
                with pytest.raises(LogUnavailableError):
                    log.recall("held", "note")
                proxy.passes = lambda _to_server, _data, _connection: True
                raise LogUnavailableError("as a reporter that reads its notes")
            return reporter

        delivery = Delivery(log, {"held": build}, SystemClock())
        delivery.start()
        wait_for(lambda: reporter.batches == [[1]])
        delivery.stop()
