import pytest
import structlog

from karrot import mutes
from karrot.delivery import Delivery
from karrot.event import GroupKey
from karrot.eventlog.sqlite.store import MemoryEventLog
from support.eventlog.mutes import make_mute
from support.manual_clock import ManualClock
from support.waiting import wait_for

KEY = GroupKey("prod-eu", "orders-svc")


@pytest.fixture
def log(clock: ManualClock) -> MemoryEventLog:
    return MemoryEventLog(clock)


@pytest.mark.parametrize(
    ("cluster", "pattern", "is_named"),
    [
        ("prod-eu", "orders-svc", True),
        ("prod-eu", "orders-*", True),
        ("prod-eu", "orders-?vc", True),
        ("prod-eu", "*", True),
        ("prod-eu", "orders", False),
        ("prod-eu", "ORDERS-*", False),
        ("prod-eu", "orders.svc", False),
        ("prod", "orders-svc", False),
        ("*", "orders-svc", False),
    ],
)
def test_a_mute_names_the_groups_of_its_cluster_whose_whole_name_matches(
    clock: ManualClock, cluster: str, pattern: str, *, is_named: bool
) -> None:
    assert make_mute(clock, cluster=cluster, pattern=pattern).names(KEY) is is_named


def test_no_pattern_takes_long_on_a_hostile_name(clock: ManualClock) -> None:
    mute = make_mute(clock, pattern="*a" * 200 + "b")
    assert not mute.names(GroupKey("prod-eu", "a" * 5000))


def test_of_several_mutes_the_one_that_ends_last_counts(log: MemoryEventLog, clock: ManualClock) -> None:
    long, short = make_mute(clock, seconds=90, pattern="*"), make_mute(clock, seconds=30)
    for mute in (long, short):
        assert mutes.begin(log, mute)
    assert mutes.muted(log, [KEY], clock.wall_ms()) == {KEY: long}
    clock.advance(89_999)
    assert mutes.muted(log, [KEY], clock.wall_ms()) == {KEY: long}
    clock.advance(1)
    assert mutes.muted(log, [KEY], clock.wall_ms()) == {}


def test_more_mutes_than_the_bound_are_refused_and_an_end_makes_room(log: MemoryEventLog, clock: ManualClock) -> None:
    for number in range(mutes.MOST):
        assert mutes.begin(log, make_mute(clock, id=str(number)))
    assert not mutes.begin(log, make_mute(clock, id="more"))
    assert [mute.id for mute in mutes.end(log, lambda mute: mute.id == "7")] == ["7"]
    assert mutes.begin(log, make_mute(clock, id="more"))
    assert len(mutes.read(log)) == mutes.MOST


def test_a_note_of_another_version_is_no_mute_and_is_replaced(log: MemoryEventLog, clock: ManualClock) -> None:
    log.remember(*mutes.NOTE, b'[{"id": 1}]')
    assert mutes.read(log) == []
    assert mutes.begin(log, make_mute(clock))
    assert mutes.read(log) == [make_mute(clock)]


def test_the_leader_logs_the_end_of_a_mute_once(log: MemoryEventLog, clock: ManualClock) -> None:
    mutes.begin(log, make_mute(clock))
    clock.advance(60_000)
    with structlog.testing.capture_logs() as records:
        for _ in range(2):
            delivery = Delivery(log, {}, clock)
            delivery.start()
            wait_for(lambda: log.recall("karrot housekeeping", "log_time_ms") is not None)
            delivery.stop()
            clock.advance(60_000)
    (ended,) = [record for record in records if record.get("code") == "mute_ended"]
    assert {name: ended[name] for name in ("cluster", "pattern", "reason")} == {
        "cluster": "prod-eu",
        "pattern": "orders-svc",
        "reason": "a planned migration",
    }
    assert mutes.read(log) == []
