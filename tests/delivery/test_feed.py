"""A feed of a batching reporter, which sends when a batch is due. The other feed is tested in test_delivery.py."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NoReturn

import pytest

from karrot.delivery import Delivery, PacedFeed
from karrot.eventlog.base import Counter, Cursor, Damaged, LogUnavailableError, ReporterState, StoredEvent
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.base import PacedReporter, Sending, Trouble
from support.eventlog.appended_events import append_event
from support.manual_clock import ManualClock
from support.waiting import wait_for


@dataclass
class Batching:
    """A reporter that owes every event it took until a send succeeds; the test sets when it is due."""

    due: float = 60.0
    trouble: Trouble | None = None
    waiting: list[StoredEvent] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    closed: int = 0

    def take(self, events: Sequence[StoredEvent]) -> None:
        self.waiting += events

    def due_in(self) -> float:
        return self.due

    def send(self) -> Sending:
        calls = len(self.waiting)
        if self.trouble is None:
            self.sent += [event.seq for event in self.waiting]
            self.waiting.clear()
        return Sending(calls, self.trouble)

    def owed(self, log_id: str) -> int | None:
        return min((event.seq for event in self.waiting if event.log_id == log_id), default=None)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> MemoryEventLog:
    return MemoryEventLog(clock)


def feed(log: MemoryEventLog, clock: ManualClock, reporter: Batching) -> PacedFeed:
    assert isinstance(reporter, PacedReporter)
    return PacedFeed("batching", log, clock, Random(1), reporter)


def test_events_are_taken_at_once_and_sent_when_a_send_is_due(log: MemoryEventLog, clock: ManualClock) -> None:
    reporter = Batching()
    step = feed(log, clock, reporter)
    append_event(log)
    assert step.step() == 0
    assert (len(reporter.waiting), reporter.sent) == (1, [])
    assert log.cursor("batching") is None
    assert 0 < step.step() <= 60
    reporter.due = 0
    step.step()
    assert reporter.sent == [1]
    assert log.cursor("batching") == Cursor(log.log_id, 1)


def test_a_wait_is_never_longer_than_the_time_until_a_send_is_due(log: MemoryEventLog, clock: ManualClock) -> None:
    assert feed(log, clock, Batching(due=0.05)).step() == 0.05


def test_owed_events_hold_the_cursor_and_a_failure_is_reported_and_counted(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    reporter = Batching(due=0, trouble=Trouble("throttled", "slower, please"))
    step = feed(log, clock, reporter)
    append_event(log)
    append_event(log)
    step.step()
    (state,) = log.reporters()
    assert (state.state, state.last_error, state.cursor) == ("failing", "slower, please", Cursor(log.log_id, 0))
    counted = {each.name: dict(each.labels) for each in log.counters()}
    assert counted["karrot_reporter_failures_total"] == {"reporter": "batching", "reason": "throttled"}
    reporter.trouble = None
    step.step()
    (state,) = log.reporters()
    assert (state.state, state.cursor) == ("ok", Cursor(log.log_id, 2))


def test_a_new_leader_gets_the_owed_events_again(log: MemoryEventLog, clock: ManualClock) -> None:
    append_event(log)
    feed(log, clock, Batching(due=0)).step()
    append_event(log)
    feed(log, clock, Batching(due=0, trouble=Trouble("x", "y"))).step()
    successor = Batching(due=0)
    feed(log, clock, successor).step()
    assert successor.sent == [2]


@pytest.mark.parametrize("damaged", [{1}, {2}, {1, 2}], ids=["the first", "the last", "all"])
def test_damaged_events_are_skipped_once(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, damaged: set[int]
) -> None:
    reporter = Batching(due=0)
    append_event(log)
    append_event(log)
    page = [Damaged(log.log_id, each.seq) if each.seq in damaged else each for each in log.read(0)]
    monkeypatch.setattr(log, "read", lambda after: page[after:])
    step = feed(log, clock, reporter)
    step.step()
    step.step()
    assert reporter.sent == sorted({1, 2} - damaged)
    assert log.cursor("batching") == Cursor(log.log_id, 2)


def test_a_success_ends_the_long_delays(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_after: int) -> None:
        raise LogUnavailableError("the disk is gone")

    reporter = Batching(due=0)
    step = feed(log, clock, reporter)
    append_event(log)
    with monkeypatch.context() as broken:
        broken.setattr(log, "read", unreadable)
        assert [step.step() for _ in range(5)][-1] >= 8
    step.step()
    assert reporter.sent == [1]
    monkeypatch.setattr(log, "read", unreadable)
    assert 0.5 <= step.step() <= 1


def test_a_log_that_was_replaced_is_read_from_its_beginning(log: MemoryEventLog, clock: ManualClock) -> None:
    reporter = Batching(due=0)
    step = feed(log, clock, reporter)
    append_event(log)
    append_event(log)
    step.step()
    replaced = MemoryEventLog(clock)
    append_event(replaced)
    step.log = replaced
    step.step()
    assert reporter.sent == [1, 2, 1]
    assert replaced.cursor("batching") == Cursor(replaced.log_id, 1)


def test_the_end_takes_new_events_sends_them_and_closes(log: MemoryEventLog, clock: ManualClock) -> None:
    reporter = Batching()
    step = feed(log, clock, reporter)
    step.step()
    append_event(log)
    step.close()
    assert (reporter.sent, reporter.closed) == ([1], 1)
    assert log.cursor("batching") == Cursor(log.log_id, 1)


@pytest.mark.parametrize(("leads", "sent"), [(True, [1]), (False, [])], ids=["the leader", "no longer the leader"])
def test_only_a_process_that_still_leads_sends_its_last_data(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, *, leads: bool, sent: list[int]
) -> None:
    reporter = Batching()
    append_event(log)
    delivery = Delivery(log, {"batching": lambda: reporter}, clock)
    monkeypatch.setattr(log, "leads", lambda: leads or not delivery._stop.is_set())
    delivery.start()
    wait_for(lambda: len(reporter.waiting) == 1)
    delivery.stop()
    assert (reporter.sent, reporter.closed) == (sent, 1)


def test_a_reporter_is_closed_even_if_the_log_cannot_be_read_at_the_end(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_after: int) -> None:
        raise LogUnavailableError("the disk is gone")

    reporter = Batching()
    step = feed(log, clock, reporter)
    step.step()
    monkeypatch.setattr(log, "read", unreadable)
    step.close()
    assert reporter.closed == 1


def test_an_unexpected_failure_at_the_end_is_counted(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> NoReturn:
        raise ZeroDivisionError

    reporter = Batching()
    monkeypatch.setattr(reporter, "send", fail)
    feed(log, clock, reporter).close()
    assert reporter.closed == 1
    labels = (("reason", "unexpected"), ("reporter", "batching"))
    assert Counter("karrot_reporter_failures_total", labels, 1) in log.counters()


def test_a_full_reporter_gets_no_events_and_keeps_its_cursor(log: MemoryEventLog, clock: ManualClock) -> None:
    class Full(Batching):
        full_now = True

        def full(self) -> bool:
            return self.full_now

    reporter = Full(due=0)
    step = feed(log, clock, reporter)
    append_event(log)
    step.step()
    assert (reporter.sent, log.cursor("batching")) == ([], Cursor(log.log_id, 0))
    reporter.full_now = False
    step.step()
    assert (reporter.sent, log.cursor("batching")) == ([1], Cursor(log.log_id, 1))


def test_an_unexpected_error_in_a_reporter_is_reported_and_does_not_end_the_feed(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    class Surprising(Batching):
        def send(self) -> Sending:
            raise RuntimeError("an unexpected error")

    step = feed(log, clock, Surprising(due=0))
    append_event(log)
    assert step.step() > 0
    (state,) = log.reporters()
    assert (state.state, state.last_error) == ("failing", "RuntimeError: an unexpected error")


def test_a_send_without_a_request_keeps_the_last_known_failure(log: MemoryEventLog, clock: ManualClock) -> None:
    reporter = Batching(due=0)
    step = feed(log, clock, reporter)
    step.step()
    assert log.reporters()[0].state == "idle"
    reporter.trouble = Trouble("permission", "the role may not")
    append_event(log)
    step.step()
    reporter.trouble = None
    reporter.waiting.clear()
    step.step()
    (state,) = log.reporters()
    assert (state.state, state.last_error, state.last_success_ms) == ("failing", "the role may not", None)


def test_a_new_leader_continues_at_the_cursor_in_the_log_and_not_at_one_from_memory(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        append_event(log)
    old = [ReporterState("batching", Cursor(log.log_id, 1), "ok")]
    log.save_reporter(ReporterState("batching", Cursor(log.log_id, 2), "ok"))
    monkeypatch.setattr(log, "reporters", lambda: old)  # as an event log in PostgreSQL answers while it is away
    reporter = Batching()
    feed(log, clock, reporter).step()
    assert [event.seq for event in reporter.waiting] == [3]
    assert log.cursor("batching") == Cursor(log.log_id, 2)
