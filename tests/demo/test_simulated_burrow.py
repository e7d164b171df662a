from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.burrow.payload import parse_webhook, to_wire
from karrot.demo.simulated_burrow import CLUSTERS, GROUP_NAMES, SimulatedBurrow
from karrot.event import GroupKey, Kind, LagEvent, Status

START_MS = 1_763_741_000_123
ORDERS = GroupKey("prod-eu", "orders-svc")


def burrow(groups: int = 24, *, seed: int = 7, speed: float = 1) -> SimulatedBurrow:
    return SimulatedBurrow(groups, seed=seed, speed=speed, start_ms=START_MS)


def posts(of: SimulatedBurrow, seconds: int, step_ms: int = 100) -> list[LagEvent]:
    moments = range(START_MS, START_MS + seconds * 1000 + 1, step_ms)
    return [event for now_ms in moments for event in of.due(now_ms)]


@cache
def ten_minutes() -> tuple[LagEvent, ...]:
    return tuple(posts(burrow(), 600))


def by_group(events: Sequence[LagEvent]) -> dict[str, list[LagEvent]]:
    found = defaultdict[str, list[LagEvent]](list)
    for event in events:
        found[event.consumer].append(event)
    return found


def before(seconds: int) -> list[LagEvent]:
    return [event for event in ten_minutes() if event.observed_at_ms < START_MS + seconds * 1000]


def test_the_same_seed_gives_the_same_posts_and_another_seed_gives_others() -> None:
    assert posts(burrow(), 20) == posts(burrow(), 20)
    assert posts(burrow(), 20) != posts(burrow(seed=8), 20)


def test_a_post_is_read_as_the_posted_event() -> None:
    for event in before(60):
        assert parse_webhook(to_wire(event), observed_at_ms=event.observed_at_ms) == event


def test_ten_minutes_show_every_status_and_incidents_that_open_and_close() -> None:
    events = ten_minutes()
    assert {event.status for event in events} == {Status.OK, Status.WARN, Status.ERR}
    of_partitions = {lag.status for event in events for lag in event.partitions}
    assert of_partitions == {Status.WARN, Status.STOP, Status.STALL, Status.REWIND}
    opened = {event.incident_id for event in events if event.kind is Kind.INCIDENT}
    closed = {event.incident_id for event in events if event.kind is Kind.CLOSE}
    assert len(opened & closed) > 20
    assert closed < opened


def test_a_page_moves_within_thirty_seconds() -> None:
    events = before(30)
    assert {event.status for event in events} == {Status.OK, Status.WARN, Status.ERR}
    assert len(by_group(events)) == 26
    falling = [event.total_lag or 0 for event in by_group(events)["orders-svc"]]
    assert max(falling) > 2 * min(falling)


def test_groups_recover() -> None:
    last = [{event.status for event in events[-40:]} for events in by_group(ten_minutes()).values()]
    assert all(Status.OK in each for each in last)
    assert sum(len(each) > 1 for each in last) > 8


def test_a_deleted_group_is_silent_and_unknown() -> None:
    silent = {name: events for name, events in by_group(ten_minutes()).items() if len(events) < 60}
    assert len(silent) == 2
    for name, events in silent.items():
        assert len(events) > 5
        gone_ms = next(each for each, later in pairwise(times(events)) if later - each > 100_000) + 10_000
        assert burrow().verdict(GroupKey(events[0].cluster, name), gone_ms) is None


def test_no_group_skips_messages() -> None:
    """Check that no lag shrinks faster than a group reads, at the ends of rounds too."""
    rewinding = by_group(ten_minutes())["geo-enricher"]
    drops = [(earlier.total_lag or 0) - (later.total_lag or 0) for earlier, later in pairwise(rewinding)]
    assert max(drops) < max(event.total_lag or 0 for event in rewinding) / 2


def times(events: Sequence[LagEvent]) -> list[int]:
    return [*(event.observed_at_ms for event in events), START_MS + 600_000]


def test_a_new_group_is_not_complete_at_first() -> None:
    told = by_group(ten_minutes())
    assert sum(events[0].complete != 1 for events in told.values()) == 2
    assert sum(all(event.complete == 1 for event in events) for events in told.values()) == 22


def test_burrow_reports_itself_in_each_cluster_and_groups_are_in_both() -> None:
    events = by_group(ten_minutes())
    for cluster in CLUSTERS:
        own = events[f"burrow-{cluster}"]
        assert {(event.cluster, event.status, event.partition_count) for event in own} == {(cluster, Status.OK, 50)}
        assert {(lag.topic, lag.owner) for event in own if (lag := event.max_lag)} == {("__consumer_offsets", "")}
        assert sum(each[0].cluster == cluster for each in events.values()) == 13
    assert events.keys() >= {name for name, _ in GROUP_NAMES}


@given(st.integers(0, 23), st.integers(0, 3_600))
def test_offsets_are_between_zero_and_the_log_end_and_times_are_in_the_past(number: int, second: int) -> None:
    name, _ = GROUP_NAMES[number]
    now_ms = START_MS + second * 1000
    verdict = burrow().verdict(GroupKey(CLUSTERS[number % 2], name), now_ms)
    for lag in verdict.partitions if verdict else ():
        assert (lag.current_lag or 0) >= 0
        if lag.start and lag.end:
            assert lag.start.offset >= 0
            assert lag.start.timestamp_ms <= lag.end.timestamp_ms <= now_ms


def test_each_group_is_judged_once_per_interval_from_a_random_moment_on() -> None:
    told = {name: events for name, events in by_group(ten_minutes()).items() if len(events) == 120}
    assert len(told) > 20
    assert len({events[0].observed_at_ms for events in told.values()}) > 10
    for events in told.values():
        gaps = [later.observed_at_ms - earlier.observed_at_ms for earlier, later in pairwise(events)]
        assert all(4_800 <= gap <= 5_200 for gap in gaps)


def test_after_a_pause_of_the_machine_each_group_is_judged_once() -> None:
    sleepy = burrow()
    posts(sleepy, 6)
    later_ms = START_MS + 3_000_000
    woken = list(sleepy.due(later_ms))
    assert len(woken) == len({event.consumer for event in woken}) > 20
    assert list(sleepy.due(later_ms + 4_000)) == []


@pytest.mark.parametrize(("speed", "interval_s"), [(0.5, 10), (3, 5), (10, 5)])
def test_speed_makes_no_interval_shorter_and_keeps_timestamps_real(speed: float, interval_s: float) -> None:
    fast = burrow(speed=speed)
    assert fast.interval_s == interval_s
    events = by_group(posts(fast, 120, step_ms=100))
    assert len(events["billing"]) == 120 / interval_s
    assert window(events["billing"][-1]) == pytest.approx(window(by_group(before(60))["billing"][-1]) / speed, rel=0.01)


def window(event: LagEvent) -> Any:
    assert event.max_lag
    assert event.max_lag.start
    assert event.max_lag.end
    return event.max_lag.end.timestamp_ms - event.max_lag.start.timestamp_ms


def test_an_unknown_group_has_no_verdict() -> None:
    assert burrow().verdict(GroupKey("prod-us", ORDERS.consumer), START_MS) is None
    assert burrow().verdict(ORDERS, START_MS) is not None
