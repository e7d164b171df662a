"""Burrow is cut off from Kafka if it reads no more commits, and a cluster in which nobody commits is only quiet."""

import msgspec
import pytest

from karrot.burrow_cut_off import CommitsRead, cut_off, keep, newest_read_ms, read
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.runbooks_and_remedies import RESYNC
from support.burrow.lag_events import make_event, make_partition
from support.eventlog.read_commits import DAY_S, HOUR_S, INTERVAL_S, MINUTE_S, ResyncedBurrow
from support.manual_clock import ManualClock

CUT_OFF = frozenset({"prod-eu"})
QUIET: frozenset[str] = frozenset()


@pytest.fixture
def burrow(log: MemoryEventLog, clock: ManualClock) -> ResyncedBurrow:
    return ResyncedBurrow(log, clock)


def pause(burrow: ResyncedBurrow, seconds: float) -> float | None:
    """Return how long nobody commits before Burrow counts as cut off. The pause ends with a commit."""
    found = None
    for passed in range(INTERVAL_S, round(seconds) + 1, INTERVAL_S):
        burrow.reads_none(INTERVAL_S)
        if found is None and cut_off(burrow.log):
            found = passed
    burrow.reads_commits(INTERVAL_S)
    return found


def test_without_commits_for_five_minutes_burrow_is_cut_off_until_it_reads_a_commit(
    burrow: ResyncedBurrow, log: MemoryEventLog
) -> None:
    burrow.reads_commits(40 * MINUTE_S)
    assert cut_off(log) == QUIET
    burrow.reads_none(4 * MINUTE_S)
    assert cut_off(log) == QUIET
    burrow.reads_none(2 * MINUTE_S)
    assert cut_off(log) == CUT_OFF
    burrow.reads_none(3 * DAY_S)
    assert cut_off(log) == CUT_OFF
    burrow.reads_commits(INTERVAL_S)
    assert cut_off(log) == QUIET


@pytest.mark.parametrize("every_s", [8 * MINUTE_S, HOUR_S, 11 * HOUR_S, 10 * DAY_S])
def test_a_cluster_with_rare_commits_or_none_is_never_cut_off(burrow: ResyncedBurrow, every_s: int) -> None:
    for _ in range(2 * DAY_S // every_s + 1):
        assert pause(burrow, min(every_s, 2 * DAY_S)) is None


def test_a_consumer_that_somebody_tries_for_twenty_minutes_is_no_fault(burrow: ResyncedBurrow) -> None:
    burrow.reads_commits(20 * MINUTE_S)
    assert pause(burrow, 5 * HOUR_S) is None


def test_every_outage_is_found_as_soon_as_the_first_one(burrow: ResyncedBurrow) -> None:
    for hours in (1, 1.9, 3.5, 6.9, 10):
        burrow.reads_commits(DAY_S)
        assert pause(burrow, hours * HOUR_S) == 6 * MINUTE_S


def test_a_kafka_that_comes_back_for_moments_is_found_each_time(burrow: ResyncedBurrow) -> None:
    burrow.reads_commits(DAY_S)
    assert [pause(burrow, 20 * MINUTE_S) for _ in range(12)] == [6 * MINUTE_S] * 12


def test_nights_and_weekends_without_commits_are_no_fault_within_the_time_that_is_set(burrow: ResyncedBurrow) -> None:
    burrow.after_s = 64 * HOUR_S
    for day in range(14):
        burrow.reads_commits(10 * HOUR_S)
        assert pause(burrow, (14 if day % 7 < 4 else 62) * HOUR_S) is None
    assert pause(burrow, 70 * HOUR_S) == 64 * HOUR_S + INTERVAL_S


def test_a_longer_time_that_is_set_during_a_rest_ends_the_alert_with_the_next_resync(burrow: ResyncedBurrow) -> None:
    burrow.reads_commits(DAY_S)
    burrow.reads_none(2 * HOUR_S)
    burrow.after_s = 16 * HOUR_S
    assert cut_off(burrow.log) == CUT_OFF
    burrow.reads_none(INTERVAL_S)
    assert cut_off(burrow.log) == QUIET


def test_log_ends_that_move_show_that_burrow_reaches_kafka_although_nobody_commits(burrow: ResyncedBurrow) -> None:
    burrow.reads_commits(HOUR_S)
    newest_ms = burrow.newest_ms
    burrow.moving = CUT_OFF
    burrow.reads_none(5 * HOUR_S)
    assert cut_off(burrow.log) == QUIET
    assert read(burrow.log)["prod-eu"].newest_ms == newest_ms
    burrow.moving = QUIET
    burrow.reads_none(6 * MINUTE_S)
    assert cut_off(burrow.log) == CUT_OFF


@pytest.mark.parametrize("interval_s", [10, 3600])
def test_another_interval_of_resync_does_not_end_the_alert(burrow: ResyncedBurrow, interval_s: int) -> None:
    burrow.reads_commits(DAY_S)
    burrow.reads_none(HOUR_S)
    burrow.reads_none(3600, interval_s=interval_s)
    assert cut_off(burrow.log) == CUT_OFF


def test_a_burrow_that_no_longer_shows_its_own_group_stays_cut_off_until_it_reads_a_commit(
    burrow: ResyncedBurrow,
) -> None:
    burrow.newest_ms = 0
    burrow.reads_none(DAY_S)
    assert read(burrow.log) == {}
    burrow.reads_commits(HOUR_S)
    burrow.newest_ms = 0
    burrow.reads_none(4 * MINUTE_S)
    assert cut_off(burrow.log) == QUIET
    burrow.reads_none(5 * HOUR_S)
    assert cut_off(burrow.log) == CUT_OFF
    burrow.reads_commits(INTERVAL_S)
    assert cut_off(burrow.log) == QUIET


def test_hours_without_a_karrot_are_no_pause_of_the_commits(burrow: ResyncedBurrow, clock: ManualClock) -> None:
    burrow.reads_commits(HOUR_S)
    clock.advance(5 * HOUR_S * 1000)
    burrow.reads_commits(HOUR_S)
    assert pause(burrow, 10 * MINUTE_S) == 6 * MINUTE_S


@pytest.mark.parametrize("ahead_ms", [-7_200_000, 7_200_000])
def test_burrows_clock_does_not_matter(log: MemoryEventLog, clock: ManualClock, ahead_ms: int) -> None:
    burrow = ResyncedBurrow(log, clock, ahead_ms)
    burrow.reads_commits(HOUR_S)
    assert cut_off(log) == QUIET
    assert pause(burrow, 10 * MINUTE_S) == 6 * MINUTE_S


def test_nothing_is_known_if_resync_reads_burrow_no_more(
    burrow: ResyncedBurrow, log: MemoryEventLog, clock: ManualClock
) -> None:
    burrow.reads_commits(HOUR_S)
    burrow.reads_none(HOUR_S)
    clock.advance(15 * MINUTE_S * 1000)
    assert cut_off(log) == CUT_OFF
    clock.advance(1)
    assert (cut_off(log), read(log)) == (QUIET, {})


def test_with_rare_resyncs_the_first_one_after_the_pause_finds_it(burrow: ResyncedBurrow, log: MemoryEventLog) -> None:
    burrow.reads_commits(4 * HOUR_S, interval_s=600)
    assert cut_off(log) == QUIET
    burrow.reads_none(600, interval_s=600)
    assert cut_off(log) == CUT_OFF


def test_each_cluster_counts_alone(log: MemoryEventLog, clock: ManualClock) -> None:
    for minute in range(0, 80, 2):
        clock.advance(120_000)
        keep(log, {"prod-eu": min(minute, 60), "prod-us": minute}, (), INTERVAL_S, 300)
    assert cut_off(log) == CUT_OFF
    assert read(log).keys() == {"prod-eu", "prod-us"}


def test_a_note_of_another_version_is_replaced(log: MemoryEventLog) -> None:
    log.remember(RESYNC, "commits_read", msgspec.msgpack.encode({"prod-eu": "?"}))
    assert cut_off(log) == QUIET
    keep(log, {"prod-eu": 7}, (), INTERVAL_S, 300)
    now_ms = log.log_time_ms()
    assert read(log) == {"prod-eu": CommitsRead(7, now_ms, now_ms, now_ms, 300_000, 120_000)}


def test_a_log_that_cannot_be_read_tells_nothing(log: MemoryEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LogUnavailableError("the database is away")

    monkeypatch.setattr(log, "recall", fail)
    assert (cut_off(log), read(log)) == (QUIET, {})


def test_the_newest_commit_is_that_of_any_partition_of_burrows_own_group() -> None:
    own = [make_partition(topic="__consumer_offsets", partition=number) for number in range(3)]
    newest = own[1].end
    assert newest is not None
    own[1] = own[1]._replace(end=newest._replace(timestamp_ms=newest.timestamp_ms + 5))
    own[2] = own[2]._replace(end=None)
    event = make_event(consumer="burrow-eu", max_lag=own[0], partitions=tuple(own))
    assert newest_read_ms(event) == newest.timestamp_ms + 5
    assert newest_read_ms(event._replace(partitions=())) == 0
    assert newest_read_ms(event._replace(consumer="orders")) == 0
