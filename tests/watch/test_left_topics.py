"""A topic that a group does not read any more counts in nothing, and only such a topic."""

from pathlib import Path

import pytest

from karrot.eventlog.next_group_state import summarize
from karrot.watch.cluster_interface import Failure
from support.kafka.in_memory_kafka import make_member
from support.kafka.watch_rig import NEW, OLD, SIDE, WINDOW, WatchRig


@pytest.fixture
def rig(tmp_path: Path) -> WatchRig:
    rig = WatchRig(tmp_path)
    rig.kafka.put("g", {OLD: 1000, NEW: 1000}, make_member(OLD, NEW))
    return rig


def test_a_group_that_moves_to_another_topic_is_ok_and_the_old_topic_is_shown_as_left(rig: WatchRig) -> None:
    rig.poll(12)
    rig.read("g", NEW)
    assert set(rig.statuses(30)) == {"OK"}
    [event] = rig.poll()
    assert [(each.topic, each.status_text, each.current_lag) for each in event.partitions] == [
        ("new", "OK", 0),
        ("old", "LEFT", None),
    ]
    old = event.partitions[1]
    assert old.end is not None
    assert (old.end.offset, old.log_end) == (1060, 1215)
    assert (event.total_lag, event.partition_count, event.complete) == (0, 1, 1.0)
    assert event.max_lag is not None
    assert event.max_lag.topic == "new"


def test_a_topic_is_left_only_after_a_window_in_which_it_counts_in_the_lag(rig: WatchRig) -> None:
    rig.poll(12)
    rig.read("g", NEW)
    lags = [event.total_lag for event in rig.poll(WINDOW + 1)]
    assert lags == [*range(5, 5 * WINDOW, 5), 0, 0]


def test_a_topic_that_was_left_before_the_first_poll_causes_no_incident(rig: WatchRig) -> None:
    rig.read("g", NEW)
    assert set(rig.statuses(30)) == {"OK"}
    assert rig.outcomes[-1].events[0].partitions[1].status_text == "LEFT"


def test_what_retention_or_a_new_topic_does_to_the_offset_of_a_left_topic_is_no_alert(rig: WatchRig) -> None:
    rig.read("g", NEW)
    rig.poll(20)
    rig.kafka.starts[OLD] = rig.kafka.ends[OLD] = 1050
    rig.poll(2)
    assert (rig.health["g"].messages_lost, rig.health["g"].beyond_end) == (0, 0)
    rig.kafka.starts[OLD], rig.kafka.ends[OLD] = 0, 10
    assert rig.statuses(5, writes=0) == ["OK"] * 5
    assert (rig.health["g"].messages_lost, rig.health["g"].beyond_end) == (0, 0)


def test_a_left_partition_is_not_among_the_bad_ones(rig: WatchRig) -> None:
    rig.read("g", NEW)
    [*_, event] = rig.poll(20)
    assert summarize(event, 0).bad == (0, 0, 0, 0)


def test_a_partition_without_an_owner_in_a_topic_that_the_group_reads_counts(rig: WatchRig) -> None:
    rig.kafka.put("g", {NEW: 1000, SIDE: 1000}, make_member(NEW, SIDE))
    rig.poll(12)
    rig.read("g", NEW)
    [*_, event] = rig.poll(30)
    assert (event.status_text, event.partitions[1].status_text, event.total_lag) == ("ERR", "STOP", 150)


def test_a_topic_whose_offset_moves_without_an_owner_counts(rig: WatchRig) -> None:
    rig.read("g", NEW)
    for _ in range(30):
        rig.kafka.offsets["g"][OLD] += 1
        events = rig.poll()
    assert [(event.status_text, event.total_lag) for event in events] == [("WARN", 120)]


def test_a_group_whose_members_own_nothing_has_left_nothing(rig: WatchRig) -> None:
    rig.poll(12)
    rig.kafka.put("g", rig.kafka.offsets["g"], make_member())
    [*_, event] = rig.poll(30)
    assert [each.status_text for each in event.partitions] == ["STOP", "STOP"]


def test_a_group_that_rebalances_has_left_nothing(rig: WatchRig) -> None:
    rig.poll(12)
    rig.kafka.put("g", rig.kafka.offsets["g"], make_member(NEW), state="PreparingRebalance")
    [*_, event] = rig.poll(30)
    assert [each.status_text for each in event.partitions] == ["OK", "STOP"]


def test_a_group_whose_members_cannot_be_read_has_left_nothing(rig: WatchRig) -> None:
    rig.poll(12)
    rig.read("g", NEW)
    rig.kafka.undescribed["g"] = Failure("_timed_out", "late")
    [*_, event] = rig.poll(30)
    assert [each.status_text for each in event.partitions] == ["OK", "STALL"]


def test_a_topic_that_the_group_reads_again_counts_again_without_an_incident_at_once(rig: WatchRig) -> None:
    rig.read("g", NEW)
    rig.poll(60)
    rig.read("g", OLD, NEW)
    [event] = rig.poll(reads={"g": 2})
    assert event.status_text == "OK"
    assert event.total_lag is not None
    assert event.total_lag > 300
    assert rig.statuses(8, writes=0) == ["OK"] * 8
    assert set(rig.statuses(30)) == {"OK"}


def test_a_topic_that_the_group_owns_again_and_does_not_read_is_an_error(rig: WatchRig) -> None:
    rig.read("g", NEW)
    rig.poll(60)
    rig.read("g", OLD, NEW)
    assert rig.statuses(2 * WINDOW, reads={})[-1] == "ERR"


def test_a_left_topic_stays_left_while_the_group_is_empty_and_the_topic_that_it_read_counts(rig: WatchRig) -> None:
    rig.read("g", NEW)
    rig.poll(20)
    rig.read("g")
    [*_, event] = rig.poll(30)
    assert (event.status_text, event.total_lag) == ("ERR", 150)
    assert [each.status_text for each in event.partitions] == ["STOP", "LEFT"]


def test_a_left_topic_is_left_after_a_restart(rig: WatchRig) -> None:
    rig.poll(12)
    rig.read("g", NEW)
    rig.poll(6)
    rig.restart()
    assert set(rig.statuses(4)) == {"OK"}
    assert rig.outcomes[-1].events[0].partitions[1].status_text == "LEFT"
    rig.restart()
    assert set(rig.statuses(20)) == {"OK"}
    assert rig.outcomes[-1].events[0].partitions[1].status_text == "LEFT"
