"""A finished job is abandoned and causes no incident. A service that is down is not abandoned."""

import re
from pathlib import Path

import pytest

from karrot.burrow.notification_rules import NameFilter
from karrot.event import TopicPartition
from karrot.eventlog.next_group_state import summarize
from karrot.watch.cluster_interface import Failure
from support.kafka.in_memory_kafka import make_member
from support.kafka.watch_rig import HOUR, NEW, OLD, WINDOW, WatchRig


@pytest.fixture
def rig(tmp_path: Path) -> WatchRig:
    """Return a rig whose lists have shown for more than a minute which groups exist."""
    rig = WatchRig(tmp_path)
    rig.poll(8)
    return rig


def run_job(rig: WatchRig, polls: int = 9, group: str = "g") -> None:
    """Run a group until it has finished and left messages."""
    rig.kafka.put(group, {OLD: 1000}, make_member(OLD))
    rig.poll(polls)
    rig.read(group)


def test_a_finished_job_is_abandoned_and_causes_no_incident(rig: WatchRig) -> None:
    run_job(rig)
    assert rig.statuses(WINDOW + 2) == ["OK"] * WINDOW + ["ABANDONED"] * 2
    assert set(rig.statuses(2 * HOUR)) == {"ABANDONED"}
    [event] = rig.poll()
    assert {(each.status_text, each.incident_id) for outcome in rig.outcomes for each in outcome.events} == {
        ("OK", None)
    }
    assert [each.status_text for each in event.partitions] == ["ABANDONED"]
    assert dict(event.extras)["abandoned"] == "brief"
    assert event.total_lag == 5 * (WINDOW + 2 + 2 * HOUR + 1)
    assert rig.health["g"].abandoned
    assert (summarize(event, 0).status_text, summarize(event, 0).bad) == ("ABANDONED", (0, 0, 0, 0))


def test_a_job_that_no_poll_saw_running_is_abandoned(rig: WatchRig) -> None:
    rig.kafka.put("g", {OLD: 1000})
    assert set(rig.statuses(30)) == {"ABANDONED"}


def test_two_hundred_finished_jobs_are_abandoned_and_a_service_beside_them_is_judged(rig: WatchRig) -> None:
    rig.kafka.put("service", {NEW: 1000}, make_member(NEW))
    for number in range(200):
        rig.kafka.put(f"job-{number}", {OLD: 1000 - number})
    events = rig.poll(30)
    assert {event.status_text for event in events} == {"OK"}
    assert sum(each.abandoned for each in rig.health.values()) == 200
    assert not rig.health["service"].abandoned


def test_a_group_that_was_empty_at_the_first_poll_has_an_unknown_past_and_is_an_error(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path)
    rig.kafka.put("g", {OLD: 1000})
    rig.poll(2 * WINDOW)
    assert set(rig.statuses(3 * HOUR)) == {"ERR"}


def test_a_group_that_was_empty_at_the_first_poll_stays_an_error_although_its_topic_gets_nothing(
    tmp_path: Path,
) -> None:
    rig = WatchRig(tmp_path)
    rig.kafka.put("g", {OLD: 900})
    rig.poll(2 * WINDOW)
    assert set(rig.statuses(3 * HOUR, writes=0)) == {"ERR"}


def test_a_service_that_ran_at_the_first_poll_and_dies_is_an_error_until_it_is_deleted(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path)
    run_job(rig)
    assert rig.statuses(12)[-1] == "ERR"
    assert set(rig.statuses(3 * HOUR)) == {"ERR"}


def test_a_service_that_ran_for_longer_than_the_time_and_dies_is_an_error(rig: WatchRig) -> None:
    run_job(rig, HOUR + 2)
    assert rig.statuses(12)[-1] == "ERR"
    assert set(rig.statuses(3 * HOUR)) == {"ERR"}


def test_the_times_in_which_a_group_was_active_are_added(rig: WatchRig) -> None:
    for _ in range(3):
        run_job(rig, HOUR // 4)
        assert rig.statuses(WINDOW + 2)[-1] == "ABANDONED"
    run_job(rig, HOUR // 4)
    assert rig.statuses(12)[-1] == "ERR"


def test_a_consumer_without_members_is_active_as_long_as_its_offsets_move(rig: WatchRig) -> None:
    rig.kafka.put("g", {OLD: 1000})
    for _ in range(HOUR // 6 + 1):
        rig.kafka.offsets["g"] = {OLD: rig.kafka.ends[OLD]}
        rig.poll(6)
    assert rig.statuses(60)[-1] == "ERR"


def test_a_group_whose_topics_get_nothing_is_abandoned_after_the_time_and_an_error_with_the_next_message(
    tmp_path: Path,
) -> None:
    rig = WatchRig(tmp_path)
    rig.kafka.put("g", {OLD: 900}, make_member(OLD))
    rig.poll(9, writes=0, reads={"g": 1})
    rig.read("g")
    before = rig.poll(HOUR, writes=0)
    assert before[-1].status_text == "ERR"
    [event] = rig.poll(writes=0)
    assert (event.shown_status, event.incident_id) == ("ABANDONED", before[-1].incident_id)
    assert dict(event.extras)["abandoned"] == "idle"
    assert set(rig.statuses(HOUR, writes=0)) == {"ABANDONED"}
    assert rig.statuses(1, writes=1) == ["ERR"]


def test_a_topic_that_cannot_be_read_does_not_show_that_it_got_nothing(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path)
    rig.kafka.put("g", {OLD: 900}, make_member(OLD))
    rig.poll(9, writes=0, reads={"g": 1})
    rig.read("g")
    rig.poll(2 * WINDOW, writes=0)
    rig.kafka.failures[OLD] = Failure("_timed_out", "late")
    assert set(rig.statuses(HOUR, writes=0)) == {"ERR"}
    rig.kafka.failures.clear()
    assert rig.statuses(1, writes=0) == ["ABANDONED"]
    rig.kafka.failures[OLD] = Failure("_timed_out", "late")
    assert rig.statuses(1, writes=0) == ["ABANDONED"]


def test_nobody_knows_when_a_group_became_empty_in_a_gap_between_polls(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path)
    rig.kafka.put("g", {OLD: 900}, make_member(OLD))
    rig.poll(9, writes=0, reads={"g": 1})
    rig.read("g")
    rig.restart(down_s=900)
    assert rig.statuses(2 * HOUR, writes=0)[-1] == "ERR"


def test_a_group_with_a_named_pattern_is_abandoned_while_it_has_no_members(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path, abandoned_groups=re.compile("^job-"))
    rig.kafka.put("job-a", {OLD: 1000}, make_member(OLD))
    rig.kafka.put("other", {NEW: 1000})
    rig.poll(2 * WINDOW, reads={})
    assert rig.outcomes[-1].events[0].shown_status == "ERR"
    rig.read("job-a")
    assert rig.statuses(WINDOW + 2, "job-a") == ["ERR"] * WINDOW + ["ABANDONED"] * 2
    assert [each.shown_status for each in rig.outcomes[-1].events] == ["ABANDONED", "ERR"]
    reasons = [dict(each.extras).get("abandoned") for each in rig.outcomes[-1].events]
    assert reasons == ["named", None]


@pytest.mark.parametrize("offsets", [{}, {OLD: 1000}])
def test_a_new_service_that_starts_and_fails_again_and_again_has_one_incident(
    rig: WatchRig, offsets: dict[TopicPartition, int]
) -> None:
    rig.kafka.put("g", offsets, make_member(OLD))
    assert rig.statuses(2 * WINDOW, reads={})[-1] == "ERR"
    for _ in range(4):
        rig.read("g")
        assert rig.statuses(1, reads={}) == ["ERR"]
        rig.read("g", OLD)
        assert rig.statuses(2, reads={}) == ["ERR", "ERR"]


def test_a_job_that_runs_for_less_than_a_poll_was_not_active_since_its_run_before(rig: WatchRig) -> None:
    rig.kafka.put("g", {OLD: 1000})
    for _ in range(3):
        rig.kafka.offsets["g"] = {OLD: rig.kafka.ends[OLD]}
        assert rig.statuses(HOUR)[-1] == "ABANDONED"


def test_a_finished_job_whose_topic_is_deleted_was_not_active(rig: WatchRig) -> None:
    rig.kafka.put("g", {OLD: 1000, NEW: 1000})
    rig.poll(2 * WINDOW)
    del rig.kafka.offsets["g"][OLD]
    assert set(rig.statuses(WINDOW)) == {"ABANDONED"}


def test_a_group_whose_uncommitted_partitions_get_messages_is_not_idle(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path)
    rig.kafka.put("g", {OLD: 1000}, make_member(OLD, NEW))
    rig.poll(2 * WINDOW, reads={})
    rig.read("g")
    for _ in range(HOUR + 2):
        rig.kafka.ends[NEW] += 5
        [event] = rig.poll(writes=0)
    assert event.shown_status == "ERR"


def test_a_group_that_comes_back_is_judged_again(rig: WatchRig) -> None:
    run_job(rig)
    rig.poll(2 * WINDOW)
    rig.read("g", OLD)
    assert rig.statuses(2, reads={}) == ["OK", "OK"]
    assert not rig.health["g"].abandoned
    assert rig.statuses(WINDOW + 2, reads={})[-1] == "ERR"


def test_with_0_only_the_pattern_names_abandoned_groups(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path, abandoned_after=0)
    rig.poll(8)
    run_job(rig)
    assert rig.statuses(2 * HOUR, writes=0)[-1] == "OK"
    assert rig.statuses(30)[-1] == "ERR"


def test_an_abandoned_group_stays_abandoned_after_a_restart(rig: WatchRig) -> None:
    run_job(rig)
    rig.poll(5)
    rig.restart()
    assert set(rig.statuses(30)) == {"OK", "ABANDONED"}
    rig.restart(down_s=7200)
    assert set(rig.statuses(30)) == {"ABANDONED"}


def test_a_group_that_began_while_the_watch_was_down_was_active_for_at_most_that_time(rig: WatchRig) -> None:
    rig.restart(down_s=60)
    rig.kafka.put("g", {OLD: 1000})
    assert rig.statuses(30)[-1] == "ABANDONED"
    rig.restart(down_s=3600)
    rig.kafka.put("h", {OLD: 1000})
    assert rig.statuses(30, "h")[-1] == "ERR"


def test_a_service_with_a_day_of_history_is_an_error_after_a_restart_of_the_watch(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path)
    run_job(rig, 20)
    rig.restart()
    assert rig.statuses(30)[-1] == "ERR"


def test_a_group_that_is_listed_late_in_the_first_minute_is_not_new(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path)
    rig.kafka.put("g", {OLD: 1000})
    rig.kafka.unlisted = {"g"}
    rig.poll(2)
    rig.kafka.unlisted = set()
    assert rig.statuses(30)[-1] == "ERR"


def test_an_incomplete_list_does_not_show_that_a_group_is_new(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path)
    rig.kafka.put("g", {OLD: 1000})
    rig.kafka.unlisted, rig.kafka.is_complete = {"g"}, False
    rig.poll(20)
    rig.kafka.unlisted, rig.kafka.is_complete = set(), True
    assert rig.statuses(30)[-1] == "ERR"


def test_a_group_that_a_filter_left_out_before_the_restart_is_not_new(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path, groups=NameFilter(deny=("g",)))
    rig.kafka.put("g", {OLD: 1000})
    rig.poll(20)
    rig.restart()
    assert rig.statuses(30)[-1] == "ERR"


def test_a_group_whose_offsets_could_not_be_read_is_not_new_later(rig: WatchRig) -> None:
    rig.kafka.put("g", {OLD: 1000})
    rig.kafka.failures["g"] = Failure("_timed_out", "late")
    rig.poll(HOUR)
    rig.kafka.failures.clear()
    rig.restart()
    assert rig.statuses(30)[-1] == "ABANDONED"
