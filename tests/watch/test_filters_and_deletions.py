"""Watch reads only the groups and topics that its filters choose, and shows deleted groups for some minutes."""

from pathlib import Path

from karrot.burrow.notification_rules import NameFilter
from support.kafka.in_memory_kafka import make_member
from support.kafka.watch_rig import NEW, OLD, WatchRig


def test_only_groups_that_match_and_are_not_excluded_are_watched(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path, groups=NameFilter(("^a",), ("b$",)))
    for group in ("aa", "ab", "ba"):
        rig.kafka.put(group, {OLD: 1000}, make_member(OLD))
    rig.poll(8)
    assert set(rig.health) == {"aa"}
    assert {event.consumer for outcome in rig.outcomes for event in outcome.events} == {"aa"}
    assert set(rig.kafka.asked) == {"aa"}


def test_topics_that_do_not_match_or_are_excluded_count_in_nothing(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path, topics=NameFilter(("o|e",), ("^old$",)))
    rig.kafka.put("g", {OLD: 500, NEW: 1000}, make_member(NEW))
    rig.kafka.put("h", {}, make_member(OLD))
    [*_, event] = rig.poll(20, reads={"g": 10})
    assert (event.status_text, [each.topic for each in event.partitions]) == ("OK", ["new"])
    assert (rig.health["h"].uncommitted, rig.health["g"].uncommitted) == (0, 0)


def test_a_deleted_group_is_shown_as_dead_for_five_minutes_and_after_a_restart(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path)
    rig.kafka.put("g", {OLD: 1000}, make_member(OLD))
    rig.poll(12)
    rig.kafka.delete("g")
    [*_, event] = rig.poll(7)
    assert event.status_text == "NOTFOUND"
    assert rig.health["g"].state == "Dead"
    rig.restart()
    rig.poll(20)
    assert rig.health["g"].state == "Dead"
    rig.poll(10)
    assert rig.health == {}


def test_a_group_that_is_made_again_is_not_dead(tmp_path: Path) -> None:
    rig = WatchRig(tmp_path)
    rig.kafka.put("g", {OLD: 1000}, make_member(OLD))
    rig.poll(12)
    rig.kafka.delete("g")
    rig.poll(8)
    rig.kafka.put("g", {OLD: 1000}, make_member(OLD))
    rig.poll()
    assert [each.state for each in rig.outcomes[-1].groups] == ["Stable"]
