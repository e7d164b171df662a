import threading
from collections.abc import Callable
from itertools import cycle
from random import Random

import pytest

from karrot import telemetry
from karrot.delivery import Delivery, Feed
from karrot.eventlog.base import Cursor, Damaged, LogUnavailableError, OverloadedError, ReporterState
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.base import Unreported
from support.eventlog.appended_events import append_event
from support.manual_clock import ManualClock
from support.waiting import wait_for


class Recorder:
    """A destination that keeps its events and fails a given number of times."""

    every_s = 0.0

    def __init__(self, failures: int = 0) -> None:
        self.seen: list[int] = []
        self.calls = 0
        self.closed = False
        self.failures = failures

    def report(self, events: Unreported) -> None:
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no route")
        self.seen += [event.seq for event in events]

    def close(self) -> None:
        self.closed = True


class Stuck(Recorder):
    """A destination whose report does not return until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def report(self, events: Unreported) -> None:
        self.released.wait(30)
        super().report(events)


@pytest.fixture
def log(clock: ManualClock) -> MemoryEventLog:
    return MemoryEventLog(clock, retention_ms=60_000)


def feed(log: EventLog, reporter: Recorder, clock: ManualClock) -> Feed:
    return Feed("recorder", log, clock, Random(1), lambda: reporter)


def counted(log: EventLog, metric: telemetry.Metric, **labels: str) -> float:
    return sum(
        counter.value
        for counter in log.counters()
        if counter.name == metric.name and labels.items() <= dict(counter.labels).items()
    )


def test_events_are_delivered_in_order_and_the_cursor_follows(log: MemoryEventLog, clock: ManualClock) -> None:
    recorder = Recorder()
    for _ in range(3):
        append_event(log)
    step = feed(log, recorder, clock)
    assert step.step() == 0.2
    assert recorder.seen == [1, 2, 3]
    assert log.reporters() == [ReporterState("recorder", Cursor(log.log_id, 3), "ok", last_success_ms=clock.wall)]
    assert counted(log, telemetry.REPORTER_EVENTS, reporter="recorder") == 3
    assert step.step() > 0
    append_event(log)
    step.step()
    assert recorder.seen == [1, 2, 3, 4]


def test_a_failed_report_is_repeated_with_the_same_events(log: MemoryEventLog, clock: ManualClock) -> None:
    recorder = Recorder(failures=2)
    append_event(log)
    step = feed(log, recorder, clock)
    first = step.step()
    clock.advance(1000)
    second = step.step()
    assert 0.5 <= first <= 1 <= second <= 2
    assert log.cursor("recorder") is None
    assert log.reporters() == [
        ReporterState("recorder", None, "failing", "ConnectionError: no route", last_error_ms=clock.wall)
    ]
    clock.advance(2000)
    step.step()
    assert recorder.seen == [1]
    assert counted(log, telemetry.REPORTER_FAILURES, reporter="recorder", reason="ConnectionError") == 2
    assert log.reporters()[0].state == "ok"


def test_a_feed_without_the_lead_hands_over_nothing(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    append_event(log)
    monkeypatch.setattr(log, "leads", lambda: False)
    assert feed(log, recorder, clock).step() == 0.2
    assert (recorder.calls, log.reporters()) == (0, [])


def test_a_new_process_continues_at_the_cursor(log: MemoryEventLog, clock: ManualClock) -> None:
    append_event(log)
    feed(log, Recorder(), clock).step()
    append_event(log)
    recorder = Recorder()
    feed(log, recorder, clock).step()
    assert recorder.seen == [2]


def test_events_pruned_before_their_report_are_counted(log: MemoryEventLog, clock: ManualClock) -> None:
    recorder = Recorder()
    append_event(log)
    step = feed(log, recorder, clock)
    step.step()
    append_event(log)
    append_event(log)
    clock.advance(60_001)
    log.prune()
    append_event(log)
    step.step()
    assert recorder.seen == [1, 4]
    assert counted(log, telemetry.REPORTER_DROPPED, reporter="recorder", reason="retention") == 2


def test_a_new_reporter_on_an_old_log_counts_no_lost_events(log: MemoryEventLog, clock: ManualClock) -> None:
    append_event(log)
    clock.advance(60_001)
    log.prune()
    append_event(log)
    recorder = Recorder()
    feed(log, recorder, clock).step()
    assert recorder.seen == [2]
    assert counted(log, telemetry.REPORTER_DROPPED) == 0


@pytest.mark.parametrize("damaged", [{1}, {2}, {1, 2}], ids=["the first", "the last", "all"])
def test_damaged_events_are_skipped_and_counted_once(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, damaged: set[int]
) -> None:
    recorder = Recorder()
    append_event(log)
    append_event(log)
    page = [Damaged(log.log_id, each.seq) if each.seq in damaged else each for each in log.read(0)]
    monkeypatch.setattr(log, "read", lambda after: page[after:])
    step = feed(log, recorder, clock)
    step.step()
    step.step()
    assert recorder.seen == sorted({1, 2} - damaged)
    assert counted(log, telemetry.REPORTER_DROPPED, reporter="recorder", reason="damaged") == len(damaged)
    assert log.cursor("recorder") == Cursor(log.log_id, 2)


def test_an_unreadable_log_is_read_again_later(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    append_event(log)
    step = feed(log, recorder, clock)
    with monkeypatch.context() as broken:
        broken.setattr(log, "read", raising(LogUnavailableError("disk")))
        assert step.step() >= 0.5
    clock.advance(1000)
    step.step()
    assert recorder.seen == [1]


def after(clock: ManualClock, wait_ms: int, step: Callable[[], float]) -> float:
    clock.advance(wait_ms)
    return step()


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_a_success_ends_the_long_delays(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_event(log)
    step = feed(log, Recorder(), clock)
    with monkeypatch.context() as broken:
        broken.setattr(log, "read", raising(LogUnavailableError("disk")))
        assert [after(clock, 16_000, step.step) for _ in range(5)][-1] >= 8
    after(clock, 16_000, step.step)
    monkeypatch.setattr(log, "read", raising(LogUnavailableError("disk")))
    assert 0.5 <= step.step() <= 1


def test_a_replaced_log_is_read_from_its_start(clock: ManualClock) -> None:
    old, new = MemoryEventLog(clock), MemoryEventLog(clock)
    for _ in range(5):
        append_event(old)
    recorder = Recorder()
    step = feed(old, recorder, clock)
    step.step()
    append_event(new, consumer="after")
    step.log = new
    step.step()
    assert recorder.seen == [1, 2, 3, 4, 5, 1]


def test_one_stuck_reporter_does_not_delay_the_others(log: MemoryEventLog, clock: ManualClock) -> None:
    stuck, recorder = Stuck(), Recorder()
    delivery = Delivery(log, {"stuck": lambda: stuck, "recorder": lambda: recorder}, clock)
    delivery.start()
    append_event(log)
    wait_for(lambda: recorder.seen == [1])
    assert stuck.seen == []
    stuck.released.set()
    wait_for(lambda: stuck.seen == [1])
    delivery.stop()
    assert recorder.closed
    assert stuck.closed


def test_only_the_leader_delivers(log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    asked = threading.Event()

    def follow() -> bool:
        asked.set()
        return False

    monkeypatch.setattr(log, "lead", follow)
    append_event(log)
    delivery = Delivery(log, {"recorder": lambda: recorder}, clock)
    delivery.start()
    assert asked.wait(5)
    delivery.stop()
    assert recorder.calls == 0


def test_a_process_that_leads_again_has_new_reporters(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads = threading.Event()
    leads.set()
    monkeypatch.setattr(log, "lead", leads.is_set)
    monkeypatch.setattr(log, "leads", leads.is_set)
    built: list[Recorder] = []

    def build() -> Recorder:
        built.append(Recorder())
        return built[-1]

    delivery = Delivery(log, {"recorder": build}, clock)
    delivery.start()
    append_event(log)
    wait_for(lambda: [each.seen for each in built] == [[1]])
    leads.clear()
    wait_for(lambda: built[0].closed)
    append_event(log)
    leads.set()
    wait_for(lambda: [each.seen for each in built] == [[1], [2]])
    delivery.stop()
    assert [each.closed for each in built] == [True, True]


def test_the_leader_counts_silent_groups(log: MemoryEventLog, clock: ManualClock) -> None:
    append_event(log)
    clock.advance(300_001)
    delivery = Delivery(log, {}, clock)
    delivery.start()
    wait_for(lambda: counted(log, telemetry.CONSUMERS_EXPIRED) == 1)
    delivery.stop()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (LogUnavailableError("disk"), "log_unavailable"),
        (OverloadedError("busy"), "overloaded"),
        (RuntimeError("no idea"), "unexpected"),
    ],
)
def test_failed_housekeeping_is_counted_and_delivery_continues(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    monkeypatch.setattr(log, "prune", raising(error))
    recorder = Recorder()
    delivery = Delivery(log, {"recorder": lambda: recorder}, clock)
    delivery.start()
    wait_for(lambda: counted(log, telemetry.LOG_HOUSEKEEPING_FAILURES) == 1)
    append_event(log)
    wait_for(lambda: recorder.seen == [1])
    delivery.stop()
    assert counted(log, telemetry.LOG_HOUSEKEEPING_FAILURES, reason=reason) == 1


def test_a_reporter_that_cannot_be_built_now_is_named_and_built_later_and_the_others_run(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    late, other = Recorder(), Recorder()
    can_build = threading.Event()
    errors = cycle([SystemExit(1), LogUnavailableError("the database is away"), ValueError("no such note")])

    def build() -> Recorder:
        if not can_build.is_set():
            raise next(errors)
        return late

    append_event(log)
    delivery = Delivery(log, {"late": build, "other": lambda: other}, clock)
    delivery.start()
    wait_for(lambda: other.seen == [1])
    wait_for(lambda: {each.name: each.state for each in log.reporters()} == {"late": "failing", "other": "ok"})
    assert counted(log, telemetry.REPORTER_FAILURES, reporter="late", reason="unexpected") > 0
    can_build.set()
    wait_for(lambda: late.seen == [1])
    delivery.stop()


def test_a_task_that_ends_early_ends_the_term_and_runs_again_in_the_next_one(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    runs: list[threading.Event] = []
    recorders: list[Recorder] = []

    def task(over: threading.Event) -> None:
        runs.append(over)
        if len(runs) == 1:
            raise ConnectionError("no broker")
        over.wait()

    def build() -> Recorder:
        recorders.append(Recorder())
        return recorders[-1]

    delivery = Delivery(log, {"recorder": build}, clock, alongside=[task])
    delivery.start()
    wait_for(lambda: len(runs) == 2)
    append_event(log)
    wait_for(lambda: recorders[1].seen == [1])
    assert (runs[0].is_set(), recorders[0].closed) == (True, True)
    delivery.stop()


def test_a_thread_that_cannot_start_gives_up_the_lead_and_builds_no_reporter(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, resigned = Recorder(), threading.Event()
    start = threading.Thread.start

    def fail_once(thread: threading.Thread) -> None:
        if thread.name == "karrot-recorder" and not resigned.is_set():
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    monkeypatch.setattr(log, "resign", resigned.set)
    append_event(log)
    delivery = Delivery(log, {"recorder": lambda: recorder}, clock)
    delivery.start()
    wait_for(lambda: recorder.seen == [1])
    assert resigned.is_set()
    delivery.stop()
