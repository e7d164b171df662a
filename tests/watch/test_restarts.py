"""A restart of the watch ends no incident, also if the first poll after it gets few answers."""

from pathlib import Path

import pytest

from karrot.event import LagEvent
from karrot.watch.cluster_interface import Failure
from support.kafka.in_memory_kafka import make_member
from support.kafka.watch_rig import NEW, SIDE, WINDOW, WatchRig

LATE = Failure("_timed_out", "Local: Timed out")


@pytest.fixture
def rig(tmp_path: Path) -> WatchRig:
    return WatchRig(tmp_path)


def stall(rig: WatchRig) -> LagEvent:
    """Poll a group until it is an error: it reads nothing of one partition, and has nothing to read on the other."""
    rig.kafka.put("h", {SIDE: 1000}, make_member(SIDE))
    rig.kafka.put("g", {NEW: 900, SIDE: 1000}, make_member(NEW, SIDE))
    event = next(each for each in rig.poll(2 * WINDOW, writes=0, reads={})[::-1] if each.consumer == "g")
    assert event.shown_status == "ERR"
    return event


def test_a_group_with_offsets_has_no_verdict_in_the_first_poll_after_a_restart_although_one_was_never_committed(
    rig: WatchRig,
) -> None:
    rig.kafka.put("g", {NEW: 900}, make_member(NEW, SIDE))
    before = rig.poll(2 * WINDOW, writes=0, reads={})[-1]
    rig.restart()
    assert rig.poll(writes=0, reads={}) == []
    after = rig.poll(3, writes=0, reads={})
    assert {(each.status_text, each.incident_id) for each in after} == {("ERR", before.incident_id)}


@pytest.mark.parametrize("silent", [NEW, "g"])
def test_a_log_end_or_coordinator_without_an_answer_after_a_restart_ends_no_incident(
    rig: WatchRig, silent: object
) -> None:
    before = stall(rig)
    rig.restart()
    rig.kafka.failures[silent] = LATE  # type: ignore[index]
    after = rig.poll(writes=0, reads={})
    rig.kafka.failures.clear()
    after += rig.poll(3, writes=0, reads={})
    assert {(each.status_text, each.incident_id) for each in after if each.consumer == "g"} == {
        ("ERR", before.incident_id)
    }


def test_the_rhythm_of_a_partition_without_an_answer_after_a_restart_is_kept(rig: WatchRig) -> None:
    rig.kafka.put("g", {NEW: 1000})
    for _ in range(6):
        rig.kafka.offsets["g"] = {NEW: rig.kafka.ends[NEW]}
        rig.poll(3 * WINDOW)
    rig.restart()
    rig.kafka.failures[NEW] = LATE
    rig.poll()
    rig.kafka.failures.clear()
    assert "ERR" not in rig.statuses(2 * WINDOW)


def test_a_first_unread_record_is_known_after_a_restart_without_another_read(rig: WatchRig) -> None:
    rig.kafka.gaps[NEW] = {999}
    rig.kafka.put("g", {NEW: 999}, make_member(NEW))
    assert set(rig.statuses(3 * WINDOW, writes=0, reads={})) == {"OK"}
    rig.restart()
    rig.kafka.unreadable[NEW] = LATE
    assert set(rig.statuses(2 * WINDOW, writes=0, reads={})) == {"OK"}


def test_an_open_transaction_keeps_its_age_over_a_restart(rig: WatchRig) -> None:
    rig.kafka.put("g", {NEW: 1000}, make_member(NEW))
    rig.poll(2 * WINDOW)
    rig.kafka.open_from[NEW] = rig.kafka.ends[NEW]
    rig.poll(1, reads={})
    rig.read("g")
    rig.poll(6 * WINDOW, reads={})
    rig.read("g", NEW)
    before = rig.poll(4, reads={})[-1]
    assert before.partitions[0].status_text == "OPEN_TRANSACTION"
    rig.restart()
    after = rig.poll(2 * WINDOW, reads={})
    assert {(each.partitions[0].status_text, each.incident_id) for each in after} == {
        ("OPEN_TRANSACTION", before.incident_id)
    }
