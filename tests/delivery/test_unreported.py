"""The events that a report gets: `karrot.reporters.base.Unreported`, and how delivery moves the cursor over them."""

from collections.abc import Sequence
from itertools import islice
from random import Random

import pytest
from structlog.testing import capture_logs

from karrot.delivery import Delivery, Feed
from karrot.eventlog.base import READ_LIMIT, Counter, Cursor, Damaged, LogUnavailableError, ReporterState, StoredEvent
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.base import ReportFailed, Unreported
from support.eventlog.appended_events import append_event, append_many
from support.manual_clock import ManualClock
from support.waiting import wait_for


class Scripted:
    """A reporter that takes at most ``most`` events a report, and then raises ``failure`` if that is set."""

    def __init__(self, every_s: float = 0.0, most: int | None = None) -> None:
        self.every_s = every_s
        self.most = most
        self.failure: Exception | None = None
        self.seen: list[list[int]] = []
        self.closed = 0

    def report(self, events: Unreported) -> None:
        self.seen.append([event.seq for event in islice(events, self.most)])
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        self.closed += 1


def feed_of(log: EventLog, clock: ManualClock, reporter: Scripted) -> Feed:
    return Feed("scripted", log, clock, Random(1), lambda: reporter)


def start_of(log: EventLog) -> Cursor:
    return Cursor(log.log_id, 0)


def test_what_a_report_did_not_take_comes_in_the_next_one_at_once(log: MemoryEventLog, clock: ManualClock) -> None:
    reporter = Scripted(every_s=60, most=2)
    feed = feed_of(log, clock, reporter)
    for _ in range(5):
        append_event(log)
    assert [feed.step(), feed.step(), feed.step()] == [0, 0, 60]
    assert reporter.seen == [[1, 2], [3, 4], [5]]
    assert log.cursor("scripted") == Cursor(log.log_id, 5)


def test_a_report_that_takes_nothing_is_made_again_when_the_next_is_due(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    feed = feed_of(log, clock, Scripted(every_s=60, most=0))
    append_event(log)
    assert feed.step() == 60
    assert log.cursor("scripted") == start_of(log)


def test_reports_are_due_at_fixed_times_and_missed_times_are_skipped(log: MemoryEventLog, clock: ManualClock) -> None:
    reporter = Scripted(every_s=60)
    feed = feed_of(log, clock, reporter)
    append_event(log)
    assert feed.step() == 60
    append_event(log)
    clock.advance(50_000)
    assert feed.step() == 10
    clock.advance(75_000)
    assert feed.step() == 55
    assert reporter.seen == [[1], [2]]
    append_event(log)
    clock.advance(54_999)
    assert feed.step() == pytest.approx(0.001)
    clock.advance(1)
    feed.step()
    assert reporter.seen == [[1], [2], [3]]


def test_a_report_without_events_when_it_was_due_comes_with_the_next_event(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    reporter = Scripted(every_s=60)
    feed = feed_of(log, clock, reporter)
    assert feed.step() < 1
    clock.advance(50_000)
    append_event(log)
    assert feed.step() == 10
    assert reporter.seen == [[1]]


def test_a_failure_has_the_reason_the_text_and_the_wait_that_the_reporter_names(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    reporter = Scripted(every_s=60)
    feed = feed_of(log, clock, reporter)
    append_event(log)
    reporter.failure = ReportFailed("throttled", "slower, please", retry_in_s=7)
    assert feed.step() == 7
    failing = ReporterState("scripted", None, "failing", "slower, please", clock.wall)
    assert log.reporters() == [failing]
    labels = (("reason", "throttled"), ("reporter", "scripted"))
    assert Counter("karrot_reporter_failures_total", labels, 1) in log.counters()
    reporter.failure = None
    clock.advance(7_000)
    assert feed.step() == 53
    assert reporter.seen == [[1], [1]]
    assert log.cursor("scripted") == Cursor(log.log_id, 1)


def test_without_a_wait_of_its_own_a_failure_is_tried_again_less_and_less_often(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    reporter = Scripted()
    feed = feed_of(log, clock, reporter)
    append_event(log)
    reporter.failure = ReportFailed("away", "nobody is there")
    for longest in (1, 2, 4, 8, 16, 32, 60, 60):
        assert longest / 2 <= feed.step() <= longest
        clock.advance(60_000)


def test_events_that_come_during_a_report_are_left_to_the_next_one(log: MemoryEventLog, clock: ManualClock) -> None:
    append_many(log, READ_LIMIT + 10)
    events = Unreported(log, start_of(log))
    taken = [event.seq for event in islice(events, 3)]
    clock.advance(1)
    append_event(log)
    taken += [event.seq for event in events]
    assert taken == list(range(1, READ_LIMIT + 11))
    assert (events.taken, events.cursor.seq) == (READ_LIMIT + 10, READ_LIMIT + 10)


def test_a_look_at_the_next_event_does_not_take_it(log: MemoryEventLog) -> None:
    append_event(log)
    events = Unreported(log, start_of(log))
    assert (events.peek(), events.cursor, events.taken) == (log.event(1), start_of(log), 0)
    assert (next(events), events.peek(), events.cursor.seq) == (log.event(1), None, 1)


def test_a_look_past_a_damaged_event_counts_it_once(log: MemoryEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append_event(log)
    append_event(log)
    page = [Damaged(log.log_id, 1), *log.read(1)]
    monkeypatch.setattr(log, "read", lambda after: page[after:])
    events = Unreported(log, start_of(log))
    assert (events.peek(), events.peek()) == (log.event(2), log.event(2))
    assert ([event.seq for event in events], events.damaged, events.pruned) == ([2], 1, 0)


def test_a_damaged_event_is_counted_once_though_reports_past_it_fail(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_event(log)
    append_event(log)
    page = [Damaged(log.log_id, 1), *log.read(1)]
    monkeypatch.setattr(log, "read", lambda after: page[after:])
    reporter = Scripted()
    feed = feed_of(log, clock, reporter)
    for reporter.failure in (ReportFailed("network", "no answer", 0.0), OSError("no answer"), None, None):
        clock.advance(120_000)
        feed.step()
    assert reporter.seen == [[2]] * 3
    dropped = Counter("karrot_reporter_dropped_total", (("reason", "damaged"), ("reporter", "scripted")), 1)
    assert [each for each in log.counters() if "dropped" in each.name] == [dropped]


def test_the_groups_are_each_with_its_newest_state_and_take_all_events(log: MemoryEventLog) -> None:
    for consumer in ("a", "b", "a", "c"):
        append_event(log, consumer=consumer)
    append_event(log, consumer="b", status_text="NOTFOUND")
    events = Unreported(log, Cursor(log.log_id, 1))
    found = [(each.key.consumer, each.seq, each.gone) for each in events.groups()]
    assert found == [("a", 3, False), ("c", 4, False), ("b", 5, True)]
    assert (events.taken, events.pruned, events.cursor) == (4, 0, Cursor(log.log_id, 5))
    assert events.peek() is None


def test_all_pages_of_groups_are_read_and_an_event_meanwhile_comes_in_the_next_report(
    log: MemoryEventLog,
) -> None:
    for number in range(READ_LIMIT + 1):
        append_event(log, consumer=str(number))
    events = Unreported(log, start_of(log))
    groups = events.groups()
    found = [next(groups)]
    append_event(log, consumer="0")
    found += groups
    names = [each.key.consumer for each in found]
    assert names == [*map(str, range(READ_LIMIT + 1)), "0"]
    assert (events.taken, events.cursor.seq) == (READ_LIMIT + 1, READ_LIMIT + 1)
    assert [each.key.consumer for each in Unreported(log, events.cursor).groups()] == ["0"]


def test_events_deleted_before_their_groups_were_read_are_counted_and_their_groups_are_not_lost(
    clock: ManualClock,
) -> None:
    log = MemoryEventLog(clock, retention_ms=60_000)
    for consumer in "abc":
        append_event(log, consumer=consumer)
    clock.advance(60_001)
    log.prune()
    append_event(log, consumer="d")
    events = Unreported(log, Cursor(log.log_id, 1))
    assert [each.key.consumer for each in events.groups()] == ["b", "c", "d"]
    assert (events.taken, events.pruned, events.cursor.seq) == (1, 2, 4)


@pytest.mark.parametrize(("leads", "seen"), [(True, [[1], [2]]), (False, [[1]])], ids=["leads", "does not lead"])
def test_at_the_end_only_a_process_that_leads_reports_what_is_new(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, *, leads: bool, seen: list[list[int]]
) -> None:
    reporter = Scripted(every_s=60)
    delivery = Delivery(log, {"scripted": lambda: reporter}, clock)
    append_event(log)
    delivery.start()
    wait_for(lambda: reporter.seen == [[1]])
    append_event(log)
    monkeypatch.setattr(log, "leads", lambda: leads)
    delivery.stop()
    assert (reporter.seen, reporter.closed) == (seen, 1)


def test_a_process_that_lost_the_lead_during_a_report_leaves_the_cursor_to_the_next_leader(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_event(log)
    feed = feed_of(log, clock, Scripted())
    answers = iter([True, False])
    monkeypatch.setattr(log, "leads", lambda: next(answers))
    feed.step()
    assert log.cursor("scripted") is None


@pytest.mark.parametrize("error", [LogUnavailableError("the disk is gone"), ZeroDivisionError()], ids=repr)
def test_a_reporter_is_closed_even_if_its_last_report_cannot_be_made(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    reporter = Scripted()
    feed = feed_of(log, clock, reporter)
    feed.step()
    monkeypatch.setattr(log, "read", fail)
    feed.close()
    assert reporter.closed == 1


def test_a_new_leader_continues_at_the_cursor_in_the_log_and_not_at_one_from_memory(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        append_event(log)
    log.save_reporter(ReporterState("scripted", Cursor(log.log_id, 2), "ok"))
    # As an event log in PostgreSQL answers while it is away.
    monkeypatch.setattr(log, "reporters", lambda: [ReporterState("scripted", Cursor(log.log_id, 1), "ok")])
    reporter = Scripted()
    feed_of(log, clock, reporter).step()
    assert reporter.seen == [[3]]


def test_repeated_failures_are_logged_once_for_each_reason_and_the_end_of_them_too(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    reporter = Scripted()
    feed = feed_of(log, clock, reporter)
    append_event(log)
    with capture_logs() as records:
        for failure in (ReportFailed("away", "no"), ReportFailed("away", "no"), OSError(), OSError(), None):
            reporter.failure = failure
            feed.step()
            clock.advance(60_000)
    assert [(each.get("code"), each.get("fault")) for each in records] == [
        ("reporter_cannot_send", "away"),
        ("reporter_failed", None),
        (None, None),
    ]
    assert records[-1]["event"] == "a reporter can send again"


def test_what_could_not_be_sent_at_the_end_is_logged(log: MemoryEventLog, clock: ManualClock) -> None:
    reporter = Scripted()
    feed = feed_of(log, clock, reporter)
    append_event(log)
    reporter.failure = ReportFailed("away", "nobody is there")
    feed.step()
    with capture_logs() as records:
        feed.close()
    assert [(each["code"], each["reason"]) for each in records] == [("last_values_not_sent", "nobody is there")]
    assert reporter.seen == [[1], [1]]


def test_reports_of_a_page_each_read_no_page_twice(
    log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_many(log, 2 * READ_LIMIT + 10)
    pages: list[int] = []
    read = log.read

    def noted(after: int) -> Sequence[StoredEvent | Damaged]:
        pages.append(after)
        return read(after)

    monkeypatch.setattr(log, "read", noted)
    feed = feed_of(log, clock, Scripted(most=READ_LIMIT))
    while feed.step() == 0:
        pass
    assert pages == [0, READ_LIMIT, 2 * READ_LIMIT, 2 * READ_LIMIT + 10]
