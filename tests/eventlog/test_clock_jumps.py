"""A change of the wall clock while events arrive changes nothing in the log, in memory or in a file."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karrot.event import GroupKey
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.sqlite.store import MemoryEventLog
from support.eventlog.appended_events import append_event, group_names, stored_events
from support.eventlog.event_log_contract import MAX_GROUPS, RETENTION_MS, STALE_MS
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
Y1970_MS = 0
Y2038_MS = 2**31 * 1000
"""The first second that does not fit into 32 bits."""

Set = Callable[[ManualClock], None]

JUMPS: dict[str, Set] = {
    "an hour ahead": lambda clock: clock.jump(HOUR_MS),
    "an hour back": lambda clock: clock.jump(-HOUR_MS),
    "a day ahead": lambda clock: clock.jump(DAY_MS),
    "a day back": lambda clock: clock.jump(-DAY_MS),
    "to 1970": lambda clock: clock.jump(Y1970_MS - clock.wall),
    "to 2038": lambda clock: clock.jump(Y2038_MS - clock.wall),
}
KEY = GroupKey("prod-eu", "orders-svc")


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Callable[[], EventLog]:
    bounds: dict[str, Any] = {"stale_after_ms": STALE_MS, "retention_ms": RETENTION_MS, "max_consumers": MAX_GROUPS}
    if request.param == "memory":
        return lambda: MemoryEventLog(clock, **bounds)
    return lambda: open_sqlite(tmp_path, clock, **bounds)


@pytest.fixture
def log(reopen: Callable[[], EventLog]) -> Iterator[EventLog]:
    log = reopen()
    yield log
    log.close()


@pytest.fixture(params=list(JUMPS.values()), ids=list(JUMPS))
def set_clock(request: pytest.FixtureRequest) -> Set:
    jump: Set = request.param
    return jump


def lag(log: EventLog) -> int | None:
    state = log.group(KEY)
    return None if state is None else state.summary.total_lag


def test_the_newest_event_stays_the_newest(log: EventLog, clock: ManualClock, set_clock: Set) -> None:
    append_event(log, total_lag=1)
    set_clock(clock)
    append_event(log, total_lag=2)
    assert lag(log) == 2
    clock.advance(1_000)
    append_event(log, total_lag=99, age_ms=5_000)  # observed before the other two, received later
    assert lag(log) == 2
    assert [event.event.total_lag for event in stored_events(log)] == [1, 2, 99]
    assert [each.summary.total_lag for each in log.recent([KEY])[0]] == [99, 2, 1]


def test_no_group_expires_early(log: EventLog, clock: ManualClock, set_clock: Set) -> None:
    append_event(log)
    clock.advance(STALE_MS // 2)
    set_clock(clock)
    clock.advance(STALE_MS - STALE_MS // 2)
    assert group_names(log) == ["orders-svc"]
    assert log.expire() == 0


def test_no_group_expires_late(log: EventLog, clock: ManualClock, set_clock: Set) -> None:
    append_event(log)
    clock.advance(STALE_MS // 2)
    set_clock(clock)
    append_event(log, consumer="later")
    clock.advance(STALE_MS - STALE_MS // 2 + 1)
    assert group_names(log) == ["later"]
    assert log.expire() == 1
    clock.advance(STALE_MS)
    assert group_names(log) == []
    assert log.expire() == 1


def test_events_are_kept_for_their_time_and_no_longer(log: EventLog, clock: ManualClock, set_clock: Set) -> None:
    append_event(log)
    set_clock(clock)
    clock.advance(RETENTION_MS)
    assert log.prune() == 0
    clock.advance(1)
    assert log.prune() == 1


def test_wall_clock_times_are_stored_unchanged(log: EventLog, clock: ManualClock, set_clock: Set) -> None:
    set_clock(clock)
    append_event(log)
    assert stored_events(log)[0].received_at_ms == clock.wall
    assert dict(log.heard()) == {"prod-eu": clock.wall}


def heard_s_ago(log: EventLog, clock: ManualClock) -> float:
    return (clock.wall_ms() - log.heard()["prod-eu"]) / 1000


def test_the_age_of_the_last_webhook_follows_no_clock_change(log: EventLog, clock: ManualClock, set_clock: Set) -> None:
    append_event(log)
    clock.advance(20_000)
    set_clock(clock)
    assert heard_s_ago(log, clock) == 20
    append_event(log)
    clock.jump(-HOUR_MS)
    clock.advance(400_000)
    assert heard_s_ago(log, clock) == 400


def test_a_webhook_in_the_future_is_shown_as_now_and_corrected_by_the_next_one(clock: ManualClock) -> None:
    log = MemoryEventLog(clock)
    clock.advance(HOUR_MS)
    append_event(log)
    clock.boot -= HOUR_MS  # as if another process had stored it, whose log time is ahead
    assert heard_s_ago(log, clock) == 0
    append_event(log)
    clock.advance(1_000)
    assert heard_s_ago(log, clock) == 1
    log.close()


def test_a_restart_after_the_jump_changes_nothing(tmp_path: Path, clock: ManualClock, set_clock: Set) -> None:
    before = open_sqlite(tmp_path, clock, stale_after_ms=STALE_MS)
    append_event(before, total_lag=1)
    clock.advance(STALE_MS // 2)
    before.close()
    set_clock(clock)
    after = open_sqlite(tmp_path, clock, stale_after_ms=STALE_MS)
    clock.advance(STALE_MS - STALE_MS // 2)
    assert lag(after) == 1
    clock.advance(1)
    assert lag(after) is None
    append_event(after, total_lag=2)
    assert lag(after) == 2
    after.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(sorted(JUMPS)), st.integers(0, 2 * STALE_MS)), max_size=12))
def test_no_sequence_of_jumps_changes_which_groups_are_alive(
    log: EventLog, clock: ManualClock, steps: list[tuple[str, int]]
) -> None:
    append_event(log, total_lag=0)
    for number, (name, elapsed_ms) in enumerate(steps, start=1):
        JUMPS[name](clock)
        clock.advance(elapsed_ms)
        assert (lag(log) is not None) == (elapsed_ms <= STALE_MS)
        append_event(log, total_lag=number)
        assert lag(log) == number
