"""The contract tests of an event log whose history is rewound. Each store that outlives its process runs all."""

from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from karrot.delivery import Feed
from karrot.eventlog.base import Counter, Cursor, ReporterState
from karrot.eventlog.event_log import EventLog
from karrot.reporters.base import Unreported
from support.eventlog.appended_events import append_event, stored_events
from support.eventlog.event_log_contract import OpenLog
from support.manual_clock import ManualClock
from support.reporters.archive_folder import archive_feed, read_archive
from support.waiting import wait_for

KeepCopy = Callable[[], Callable[[], None]]
"""Copies the log. The returned function puts the copy in place of the log."""


def append(log: EventLog, *consumers: str) -> None:
    for consumer in consumers:
        append_event(log, consumer=consumer)


def archive_now(feed: Feed) -> None:
    """Write every new event, and close the archive, as at the end of a lead."""
    wait_for(lambda: reports_all(feed))
    assert feed.reporter is not None
    feed.reporter.close()


def reports_all(feed: Feed) -> bool:
    feed.due_ms = feed.clock.boot_ms()
    feed.log.lead()
    feed.step()
    return feed.log.cursor("archive") == Cursor(feed.log.log_id, feed.log.size().last_seq)


def archived(place: Path) -> list[str]:
    return sorted(line.consumer for line in read_archive(place))


def ids(log: EventLog) -> list[str]:
    return [each.event_id for each in stored_events(log)]


def lost_events(log: EventLog) -> float:
    log.flush()
    return sum(each.value for each in log.counters() if each.name == "karrot_log_lost_events_total")


class RewoundLogContract:
    """Subclasses define the fixtures ``open_log`` and ``keep_copy``."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    def test_after_a_restored_backup_no_id_is_given_again_and_the_archive_has_both_histories(
        self, open_log: OpenLog, keep_copy: KeepCopy, clock: ManualClock, tmp_path: Path
    ) -> None:
        place = tmp_path / "archive"
        log = open_log()
        append(log, "a", "b", "c")
        archive_now(archive_feed(log, clock, place))
        append(log, "d")  # it is in the archive after the backup, and must not come into it again
        log.save_reporter(ReporterState("stdout", Cursor(log.log_id, 2)))
        before = ids(log)
        log.close()
        restore = keep_copy()
        log = open_log()
        append(log, "lost-1", "lost-2")
        archive_now(archive_feed(log, clock, place))
        lost = ids(log)[4:]
        log.close()
        restore()
        log = open_log()
        append(log, "new-1")
        archive_now(archive_feed(log, clock, place))
        append(log, "new-2", "new-3")
        archive_now(archive_feed(log, clock, place))
        assert ids(log)[:4] == before
        assert len({*ids(log), *lost}) == 4 + 2 + 3
        assert archived(place) == ["a", "b", "c", "d", "lost-1", "lost-2", "new-1", "new-2", "new-3"]
        cursor = log.cursor("stdout")
        assert cursor is not None
        unreported = [each.event.consumer for each in Unreported(log, cursor)]
        assert unreported == ["c", "d", "new-1", "new-2", "new-3"]
        log.close()

    def test_a_log_that_is_replaced_by_an_older_copy_while_it_is_open_says_what_it_lost(
        self, open_log: OpenLog, keep_copy: KeepCopy, clock: ManualClock, tmp_path: Path
    ) -> None:
        place = tmp_path / "archive"
        log = open_log()
        append(log, "a", "b")
        log.flush()
        restore = keep_copy()
        append(log, "lost-1", "lost-2", "lost-3")
        log.count("karrot_x_total", 7)
        log.flush()
        assert Counter("karrot_x_total", (), 7) in log.counters()
        feed = archive_feed(log, clock, place)
        archive_now(feed)
        told = ids(log)
        with capture_logs() as logs:
            restore()
            append(log, "new-1")
            archive_now(archive_feed(log, clock, place))
        assert [each["events"] for each in logs if each.get("code") == "log_rewound"] == [3]
        assert lost_events(log) == 3
        assert Counter("karrot_x_total", (), 7) in log.counters()  # for Prometheus, less would be a new start from 0
        assert ids(log)[:2] == told[:2]
        assert set(ids(log)[2:]).isdisjoint(told)
        assert archived(place) == ["a", "b", "lost-1", "lost-2", "lost-3", "new-1"]
        log.close()

    def test_a_feed_whose_cursor_is_ahead_of_a_rewound_log_misses_no_new_event(
        self, open_log: OpenLog, keep_copy: KeepCopy, clock: ManualClock, tmp_path: Path
    ) -> None:
        place = tmp_path / "archive"
        log = open_log()
        feed = archive_feed(log, clock, place)
        append(log, "a")
        wait_for(lambda: reports_all(feed))
        restore = keep_copy()
        append(log, "lost-1", "lost-2")
        wait_for(lambda: reports_all(feed))
        assert feed.state is not None
        assert feed.state.cursor == Cursor(log.log_id, 3)
        restore()
        append(log, "new-1")
        archive_now(feed)
        assert archived(place) == ["a", "lost-1", "lost-2", "new-1"]
        log.close()

    def test_a_restart_changes_no_id_and_repeats_no_event(
        self, open_log: OpenLog, clock: ManualClock, tmp_path: Path
    ) -> None:
        place, names = tmp_path / "archive", []
        told: list[str] = []
        for number in range(4):
            log = open_log()
            assert ids(log) == told
            names += [f"{number}-a", f"{number}-b"]
            append(log, f"{number}-a")
            archive_now(archive_feed(log, clock, place))
            append(log, f"{number}-b")
            told = ids(log)
            log.close()
        log = open_log()
        archive_now(archive_feed(log, clock, place))
        assert archived(place) == names
        assert [line.event_id for line in sorted(read_archive(place), key=lambda line: line.seq)] == told == ids(log)
        assert lost_events(log) == 0
        log.close()

    def test_the_loss_of_every_event_since_the_last_change_of_the_id_is_counted(
        self, open_log: OpenLog, keep_copy: KeepCopy, clock: ManualClock, tmp_path: Path
    ) -> None:
        place = tmp_path / "archive"
        log = open_log()
        append(log, "a", "b")
        log.compare({log.log_id: 3})  # any reason for another id
        restore = keep_copy()
        append(log, "lost-1", "lost-2")
        archive_now(archive_feed(log, clock, place))
        told = ids(log)
        log.close()
        restore()
        log = open_log()
        before = lost_events(log)
        append(log, "new-1")
        archive_now(archive_feed(log, clock, place))
        assert lost_events(log) - before == 2
        assert ids(log)[:2] == told[:2]
        assert ids(log)[2] not in told
        log.close()

    def test_an_archive_ahead_of_the_log_begins_another_id_and_its_lost_events_are_counted_once(
        self, open_log: OpenLog
    ) -> None:
        log = open_log()
        append(log, "a", "b")
        before = ids(log)
        log.compare({log.log_id: 2, "another log in the same archive": 9})
        assert lost_events(log) == 0
        known = log.log_id
        log.compare({known: 5})
        log.compare({known: 5})
        append(log, "c")
        assert lost_events(log) == 3
        assert ids(log)[:2] == before
        assert ids(log)[2] != f"{known}-3"
        log.compare({known: 4, log.log_id: 3})  # an archive that was restored and is older than the log
        assert lost_events(log) == 3
        log.close()
