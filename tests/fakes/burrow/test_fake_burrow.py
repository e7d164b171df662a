import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from random import Random
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.burrow.notifier import NotifierSettings
from karrot.burrow.payload import parse_webhook
from karrot.event import Kind, LagEvent, Status
from support.burrow.fake.fake_burrow import QUICK, BurrowSettings, FakeBurrow, Post, simulate
from support.burrow.fake.simulated_groups import BEHAVIOURS
from support.burrow.fake.simulated_kafka import Behaviour, ConsumerGroup, Phase, SimulatedTopic
from support.burrow.recorded_bodies import recorded_body, recorded_posts

START_MS = 1_763_741_000_123
CLUSTERS = ("prod-eu", "prod-us")


def demo(groups: int = 24, *, seed: int = 7, speed: float = 1, **more: Any) -> FakeBurrow:
    return simulate(groups, seed=seed, speed=speed, clusters=CLUSTERS, now_ms=START_MS, **more)


def seconds(number: float) -> int:
    return START_MS + int(number * 1000)


@cache
def ten_minutes() -> tuple[Post, ...]:
    return tuple(demo().due(seconds(600)))


def by_group(posts: Sequence[Post]) -> dict[str, list[LagEvent]]:
    events = defaultdict[str, list[LagEvent]](list)
    for post in posts:
        events[post.event.consumer].append(post.event)
    return events


def of(behaviour: Behaviour, *, partitions: int = 2, **more: Any) -> FakeBurrow:
    topic = SimulatedTopic("orders", [20.0] * partitions, [100_000] * partitions)
    afflicted = frozenset(("orders", partition) for partition in range(partitions))
    group = ConsumerGroup("billing", [topic], behaviour, Random(3), afflicted=afflicted)
    return FakeBurrow({"prod": [group]}, Random(4), start_ms=START_MS, **more)


# Repeatability


def test_the_same_seed_and_times_give_the_same_bodies() -> None:
    first, second = demo(), demo()
    for at in range(0, 60, 7):
        assert [post.body for post in first.due(seconds(at))] == [post.body for post in second.due(seconds(at))]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 30_000), max_size=6))
def test_the_number_of_calls_does_not_change_the_bodies(moments: list[int]) -> None:
    asked_often, asked_once = demo(6), demo(6)
    pieces = [asked_often.due(START_MS + moment) for moment in [*sorted(moments), 30_000]]
    assert [post for piece in pieces for post in piece] == asked_once.due(START_MS + 30_000)


def test_another_seed_gives_other_bodies() -> None:
    assert demo(seed=1).due(seconds(20)) != demo(seed=2).due(seconds(20))


def test_a_clock_that_goes_back_gives_no_bodies() -> None:
    burrow = demo()
    assert burrow.due(seconds(20))
    assert burrow.due(seconds(10)) == []


# The bodies


def test_a_body_is_read_as_the_posted_event() -> None:
    for post in ten_minutes()[:500]:
        assert parse_webhook(post.body, observed_at_ms=post.event.observed_at_ms) == post.event


def test_a_body_has_the_form_of_a_recorded_one() -> None:
    posts = [post.body for post in ten_minutes() if len(post.event.partitions) == 1]
    for body in (recorded_body("karrot_v1.9.5_warn.json"), recorded_posts()[0][1]):
        assert form(body) == form(posts[0])


def form(body: bytes) -> tuple[bytes, bytes]:
    """Return the part of a body that the template writes around the event."""
    head, tail = b'{\n  "Event": {"Cluster":"', b"}}\n}\n"
    return body[: len(head)], body[-len(tail) :]


# Ten minutes of the demo


def test_ten_minutes_show_every_status_and_incidents_that_open_and_close() -> None:
    posts = ten_minutes()
    assert {post.event.status for post in posts} == {Status.OK, Status.WARN, Status.ERR}
    assert {lag.status for post in posts for lag in post.event.partitions} == {
        Status.WARN,
        Status.STOP,
        Status.STALL,
        Status.REWIND,
    }
    opened = {post.event.incident_id for post in posts if post.event.kind is Kind.INCIDENT}
    closed = {post.event.incident_id for post in posts if post.is_close}
    assert len(opened & closed) > 20
    assert closed == {post.event.incident_id for post in posts if post.event.kind is Kind.CLOSE}


def test_a_page_moves_within_thirty_seconds() -> None:
    events = [post.event for post in ten_minutes() if post.event.observed_at_ms < seconds(30)]
    assert {event.status for event in events} == {Status.OK, Status.WARN, Status.ERR}
    assert len({event.consumer for event in events}) == 26
    falling = [event.total_lag or 0 for event in events if event.consumer == "orders-svc"]
    assert max(falling) > 5 * min(falling)


def test_groups_recover() -> None:
    worst_last = [max(event.status or 0 for event in events[-40:]) for events in by_group(ten_minutes()).values()]
    best_last = [min(event.status or 0 for event in events[-40:]) for events in by_group(ten_minutes()).values()]
    assert worst_last.count(Status.OK) < len(worst_last)
    assert set(best_last) == {Status.OK}


def test_a_deleted_group_sends_no_more_events() -> None:
    events = by_group(ten_minutes())
    silent = {group for group, told in events.items() if told[-1].observed_at_ms < seconds(180)}
    assert len(silent) == 2
    assert all(len(told) > 5 for told in (events[group] for group in silent))


def test_a_new_group_is_not_complete() -> None:
    told = by_group(ten_minutes())
    assert sum(events[0].complete != 1 for events in told.values()) == 2
    assert all(events[-1].complete == 1 for events in told.values())


def test_history_fills_the_windows_before_the_start() -> None:
    complete = [events[0].complete for events in by_group(ten_minutes()).values()]
    assert Counter(complete)[1.0] == 24


def test_burrow_reports_itself_in_each_cluster() -> None:
    events = by_group(ten_minutes())
    for cluster in CLUSTERS:
        own = events[f"burrow-{cluster}"]
        assert {event.cluster for event in own} == {cluster}
        assert {event.status for event in own} == {Status.OK}
        assert {(event.max_lag.topic, event.max_lag.owner) for event in own if event.max_lag} == {
            ("__consumer_offsets", "")
        }
        assert {event.partition_count for event in own} == {50}


def test_groups_are_distributed_over_the_clusters() -> None:
    assert Counter(events[0].cluster for events in by_group(ten_minutes()).values()) == {"prod-eu": 13, "prod-us": 13}


def test_a_dozen_groups_have_every_behaviour() -> None:
    assert set(BEHAVIOURS) == {
        "slowly falling behind",
        "healthy",
        "spiky",
        "stalled",
        "skewed",
        "stopped",
        "rewinding",
        "deleted",
        "just joined",
    }
    assert len(by_group(demo(12).due(seconds(10)))) == 14


# One behaviour at a time


@pytest.mark.parametrize(
    ("phase", "status"),
    [
        pytest.param(Phase(100, pace=0.5), Status.WARN, id="a consumer that is too slow"),
        pytest.param(Phase(100, pace=0), Status.STALL, id="a consumer that reads nothing"),
        pytest.param(Phase(100, commits=False), Status.STOP, id="a consumer that does not commit"),
        pytest.param(Phase(100, pace=2, goes_back=60), Status.REWIND, id="a consumer that goes back"),
    ],
)
def test_a_behaviour_gets_its_verdict_and_recovers(phase: Phase, status: Status) -> None:
    burrow = of(Behaviour((Phase(60), phase, Phase(200)), starts=(0, 0)))
    events = [post.event for post in burrow.due(seconds(280))]
    assert {lag.status for event in events for lag in event.partitions} == {status}
    assert (events[0].status, events[-1].status) == (Status.OK, Status.OK)
    assert len({event.incident_id for event in events} - {None}) == 1


# Burrow's timing


def test_a_group_is_evaluated_once_per_interval_from_a_random_moment_on() -> None:
    events = by_group(ten_minutes())
    assert all(seconds(0) <= told[0].observed_at_ms <= seconds(5) for told in events.values())
    assert len({told[0].observed_at_ms for told in events.values()}) == 26
    for told in events.values():
        for earlier, later in pairwise(told):
            assert 5_000 <= later.observed_at_ms - earlier.observed_at_ms <= 5_002


def test_a_send_interval_longer_than_the_interval_skips_every_other_evaluation() -> None:
    quiet = BurrowSettings(NotifierSettings(threshold=Status.OK, interval=5, send_interval=6))
    told = [post.event.observed_at_ms for post in of(Behaviour(), settings=quiet).due(seconds(60))]
    assert all(10_000 <= later - earlier <= 10_004 for earlier, later in pairwise(told))


def test_an_incident_keeps_its_id_and_start_until_it_is_closed() -> None:
    burrow = of(Behaviour((Phase(60), Phase(60, pace=0)), starts=(0, 0)))
    posts = burrow.due(seconds(300))
    incidents = defaultdict[str, list[Post]](list)
    for post in posts:
        if post.event.incident_id:
            incidents[post.event.incident_id].append(post)
    assert len(incidents) == 2
    for incident_id, told in incidents.items():
        assert uuid.UUID(incident_id).version == 4
        assert {post.event.incident_start for post in told} == {moment(told[0].event.observed_at_ms)}
        assert [post.is_close for post in told] == [False] * (len(told) - 1) + [True]


def moment(epoch_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=epoch_ms)


def test_after_a_failover_all_groups_are_due_at_once_with_new_incidents() -> None:
    burrow = demo()
    before = burrow.due(seconds(20))
    burrow.failover()
    herd = burrow.due(seconds(20))
    assert len(herd) == 26
    assert {post.event.observed_at_ms for post in herd} == {seconds(20)}
    ids_before = {post.event.incident_id for post in before} - {None}
    ids_after = {post.event.incident_id for post in herd} - {None}
    assert ids_after
    assert not ids_before & ids_after
    assert len(burrow.due(seconds(24.9))) == 0
    assert len({post.event.observed_at_ms for post in burrow.due(seconds(25.1))}) == 1


def test_speed_shortens_intervals_and_raises_rates_but_keeps_timestamps_real() -> None:
    usual, fast = demo().due(seconds(60)), demo(speed=10).due(seconds(6))
    assert len(fast) == pytest.approx(len(usual), rel=0.02)
    usual_ms, usual_messages = window_of_billing(usual)
    fast_ms, fast_messages = window_of_billing(fast)
    assert fast_ms == pytest.approx(usual_ms / 10, rel=0.05)
    assert fast_messages == pytest.approx(usual_messages, rel=0.05)


def window_of_billing(posts: Sequence[Post]) -> tuple[float, float]:
    """Return the mean width of the windows of a healthy group, in milliseconds and in messages."""
    lags = [event.max_lag for event in by_group(posts)["billing"]]
    widths = [
        (lag.end.timestamp_ms - lag.start.timestamp_ms, lag.end.offset - lag.start.offset)
        for lag in lags
        if lag and lag.start and lag.end
    ]
    milliseconds, messages = zip(*widths, strict=True)
    return fmean(milliseconds), fmean(messages)


def test_timestamps_follow_the_wall_clock() -> None:
    for post in ten_minutes()[:1000]:
        for lag in (post.event.max_lag, *post.event.partitions):
            assert lag is not None
            if lag.start and lag.end:
                assert lag.start.timestamp_ms <= lag.end.timestamp_ms <= post.event.observed_at_ms
                assert lag.end.observed_at_ms == lag.end.timestamp_ms // 1000 * 1000


def test_the_quick_settings_listen_to_every_group() -> None:
    assert QUICK.notifier.threshold <= Status.OK
    assert QUICK.notifier.send_close
