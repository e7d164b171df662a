"""Polls of a simulated cluster give the right verdicts at the right time, with ids that survive a restart."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest
import structlog

from karrot.burrow.notification_rules import NameFilter
from karrot.event import Kind, LagEvent, Source, TopicPartition
from karrot.eventlog.watch_data_of_groups import GroupHealth
from karrot.telemetry import WATCH_FAILURES, Metric
from karrot.watch.cluster_interface import ClusterError, Description, Failure, GroupMember
from karrot.watch.poll_loop import PollOutcome, Watcher
from karrot.watch.saved_state import Keeper, file_keeper
from support.kafka.in_memory_kafka import InMemoryKafka, make_member
from support.manual_clock import ManualClock

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
UNKNOWN = 18
"""The polls until an offset that does not move is an error, if the usual gap between commits is not known."""

DENIED = Failure("group_authorization_failed", "Broker: Group authorization failed")


def cannot_answer(_about: object) -> NoReturn:
    raise ClusterError("_timed_out", "Local: Timed out")


class Collected:
    """Keeps the outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[PollOutcome] = []

    def send(self, outcome: PollOutcome, age_ms: Callable[[], int]) -> None:
        assert age_ms() == 0
        self.outcomes.append(outcome)


class Rig:
    """A watcher of a cluster with one topic and ten seconds between polls."""

    def __init__(self, keeper: Keeper | None = None, exclude: str | None = None) -> None:
        self.kafka = InMemoryKafka(ends={A: 1000, B: 1000})
        self.clock = ManualClock()
        self.counted: Counter[str] = Counter()
        self.polled = 0
        self.keeper = keeper
        self.exclude = exclude
        self.restart()

    def restart(self) -> None:
        """Start another process on the same cluster, with the stored state of the old one."""
        self.collected = Collected()
        self.reports: list[str | None] = []
        self.watcher = Watcher(
            name="prod",
            cluster=self.kafka,
            clock=self.clock,
            send=self.collected.send,
            keeper=self.keeper,
            groups=NameFilter(deny=(self.exclude,) if self.exclude else ()),
            count=self.count,
            report=self.reports.append,
        )

    def count(self, metric: Metric, by: float = 1, **labels: str) -> None:
        assert metric is WATCH_FAILURES
        self.counted[labels["reason"]] += int(by)

    def poll(self, times: int = 1, *, reads: int = 0, writes: int = 0) -> list[LagEvent]:
        """Poll this many times; write and read this many messages before each. Return the last poll's events."""
        events: list[LagEvent] = []
        for _ in range(times):
            self.clock.advance(10_000)
            for offsets in self.kafka.offsets.values():
                offsets |= {place: offset + reads for place, offset in offsets.items()}
            self.kafka.ends = {place: end + writes for place, end in self.kafka.ends.items()}
            before = len(self.collected.outcomes)
            self.watcher.step()
            events = [event for outcome in self.collected.outcomes[before:] for event in outcome.events]
        return events

    def statuses(self, every: int | None, polls: int) -> list[str]:
        """Poll while messages arrive, and the group commits all of them ``every`` so many polls, or never."""
        found = []
        for _ in range(polls):
            self.polled += 1
            if every and self.polled % every == 0:
                self.kafka.offsets["g"] = {place: self.kafka.ends[place] for place in self.kafka.offsets["g"]}
            found += [event.status_text for event in self.poll(writes=10)]
        return found

    def all_events(self, consumer: str = "g") -> list[LagEvent]:
        return [event for outcome in self.collected.outcomes for event in outcome.events if event.consumer == consumer]

    def health(self) -> Mapping[str, GroupHealth]:
        return {each.consumer: each for each in self.collected.outcomes[-1].groups}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_no_verdict_is_given_below_half_a_ring(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    assert rig.poll(5, reads=5, writes=10) == []
    [event] = rig.poll(reads=5, writes=10)
    assert (event.status_text, event.total_lag) == ("WARN", 130)


def test_a_verdict_lists_every_partition_with_owner_and_time(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000, B: 980}, make_member(A, B, host="/10.1.2.3", name="reader"))
    rig.poll(UNKNOWN - 1)
    [event] = rig.poll()
    assert (event.cluster, event.consumer, event.source) == ("prod", "g", Source.KAFKA)
    assert event.observed_at_ms == rig.clock.wall
    assert [(each.partition, each.status_text, each.current_lag) for each in event.partitions] == [
        (0, "OK", 0),
        (1, "STALL", 20),
    ]
    assert event.partition_count == 2
    assert event.max_lag is not None
    assert (event.max_lag.partition, event.max_lag.owner, event.max_lag.client_id) == (1, "/10.1.2.3", "reader")
    assert dict(event.extras) == {"state": "Stable", "members": "1", "coordinator": "1", "rebalances": "0"}


def test_a_verdict_has_the_known_ids_of_its_topics_up_to_the_size_of_an_extra(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    rig.kafka.ids = {A.topic: "UZIT6hZ1Rkq1NrEy74N7xg", "another": "F7qB9zRkSXm0aYy1uQ2w3g"}
    rig.poll(UNKNOWN - 1)
    [event] = rig.poll()
    assert dict(event.extras)["topic_ids"] == f"{A.topic}=UZIT6hZ1Rkq1NrEy74N7xg"
    rig.kafka.ids = {A.topic: "x" * 4096}
    [event] = rig.poll()
    assert "topic_ids" not in dict(event.extras)


def test_a_stopped_consumer_that_is_still_a_member_is_stalled(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    rig.poll(12, reads=10, writes=10)
    events = [rig.poll(writes=10) for _ in range(14)]
    statuses = [event.status_text for [event] in events]
    assert statuses[:9] == ["OK"] * 9
    assert statuses[-1] == "ERR"
    [event] = events[-1]
    assert [each.status_text for each in event.partitions] == ["STALL"]


def test_a_group_without_members_is_stopped_after_a_silence_longer_than_its_ring(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(12, reads=10, writes=10)
    rig.kafka.put("g", rig.kafka.offsets["g"])
    events = [event for _ in range(12) for event in rig.poll(writes=10)]
    assert [event.status_text for event in events].count("ERR") == 2
    assert [each.status_text for each in events[-1].partitions] == ["STOP"]


def test_a_group_without_members_since_before_the_watch_is_stopped_within_two_rings(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900})
    assert rig.poll(11) == []
    assert [event.status_text for _ in range(6) for event in rig.poll()] == ["OK"] * 6
    [event] = rig.poll()
    assert (event.status_text, event.total_lag, event.partitions[0].status_text) == ("ERR", 100, "STOP")


def test_a_partition_without_a_verdict_yet_does_not_affect_its_group(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    rig.poll(12, reads=10, writes=10)
    rig.kafka.offsets["g"][B] = 5
    [event] = rig.poll(2, reads=10, writes=10)
    assert event.status_text == "OK"
    assert [each.status_text for each in event.partitions] == ["OK", "OK"]
    assert event.total_lag == 1140 - 25


def test_an_incident_has_one_id_and_start_from_the_first_warning_to_its_close(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    rig.poll(12, reads=10, writes=10)
    rig.poll(15, reads=2, writes=10)
    rig.poll(15, writes=10)
    rig.poll(3, reads=100, writes=10)
    events = rig.all_events()
    kinds = [event.kind for event in events]
    first, close = kinds.index(Kind.INCIDENT), kinds.index(Kind.CLOSE)
    assert kinds == [
        *[Kind.OBSERVATION] * first,
        *[Kind.INCIDENT] * (close - first),
        Kind.CLOSE,
        *[Kind.OBSERVATION] * (len(kinds) - close - 1),
    ]
    assert {event.status_text for event in events[first:close]} == {"WARN", "ERR"}
    [incident] = {(event.incident_id, event.incident_start) for event in events[first : close + 1]}
    assert incident[1] == datetime.fromtimestamp(events[first].observed_at_ms / 1000, UTC)
    assert events[close + 1].incident_id is None


def test_a_second_incident_has_another_id(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(UNKNOWN)
    rig.kafka.ends[A] = 900
    rig.poll(2)
    rig.kafka.ends[A] = 1000
    rig.poll(20)
    assert len({event.incident_id for event in rig.all_events() if event.kind is Kind.INCIDENT}) == 2


def test_rings_and_incidents_survive_a_restart(tmp_path: Path) -> None:
    rig = Rig(file_keeper(tmp_path / "state"))
    rig.kafka.put("g", {A: 900}, make_member(A))
    [before] = rig.poll(UNKNOWN)
    assert before.kind is Kind.INCIDENT
    rig.watcher.close()
    rig.restart()
    assert rig.poll() == []  # the commits during the restart are not known yet
    [after] = rig.poll()
    assert after.status_text == "ERR"
    assert (after.incident_id, after.incident_start) == (before.incident_id, before.incident_start)
    start = after.partitions[0].start
    assert start is not None
    assert start.timestamp_ms < before.observed_at_ms
    assert after.partitions[0].complete == 1.0


def test_an_incident_is_stored_before_it_is_sent_so_that_a_kill_does_not_change_its_id(tmp_path: Path) -> None:
    rig = Rig(file_keeper(tmp_path / "state"))
    rig.kafka.put("g", {A: 900}, make_member(A))
    [before] = rig.poll(UNKNOWN)
    rig.restart()
    [after] = rig.poll(2)
    assert after.incident_id == before.incident_id


def test_a_state_that_cannot_be_stored_loses_no_verdict(tmp_path: Path) -> None:
    rig = Rig(file_keeper(tmp_path / "nowhere" / "state"))
    rig.kafka.put("g", {A: 900}, make_member(A))
    assert [event.status_text for event in rig.poll(UNKNOWN)] == ["ERR"]
    assert rig.counted["memory"] >= 1


def test_a_deleted_group_is_reported_once_after_a_minute_without_it_and_its_coordinators_word(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.kafka.put("other", {A: 1000}, make_member(A))
    rig.poll(UNKNOWN)
    rig.kafka.delete("g")
    rig.poll(6)
    assert rig.all_events()[-1].kind is Kind.INCIDENT
    rig.poll(20)
    [deleted] = [event for event in rig.all_events() if event.kind is Kind.DELETED]
    assert (deleted.total_lag, deleted.partitions, deleted.source) == (0, (), Source.KAFKA)
    assert rig.health()["g"].state == "Dead"


def test_a_group_deleted_after_it_was_listed_is_reported_as_deleted(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(UNKNOWN)
    rig.kafka.put("g", {}, state="Dead")
    rig.poll()
    rig.kafka.delete("g")
    rig.poll(20)
    assert [event.kind for event in rig.all_events()][-2:] == [Kind.INCIDENT, Kind.DELETED]


def test_a_group_that_is_deleted_while_the_watch_is_stopped_is_reported_as_deleted(tmp_path: Path) -> None:
    rig = Rig(file_keeper(tmp_path / "state"))
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(6)
    rig.watcher.close()
    rig.kafka.delete("g")
    rig.restart()
    rig.poll(20)
    assert [event.kind for event in rig.all_events()] == [Kind.DELETED]


def test_a_deletion_is_not_lost_if_the_log_starts_cannot_be_read_in_its_poll(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.kafka.put("other", {A: 1000}, make_member(A))
    rig.poll(6)
    rig.kafka.delete("g")
    rig.poll(6)
    with monkeypatch.context() as patched:
        patched.setattr(rig.kafka, "log_starts", cannot_answer)
        assert rig.poll() == []
        assert rig.counted == {"_timed_out": 1}
    rig.poll(20)
    assert [event.kind for event in rig.all_events()].count(Kind.DELETED) == 1


def test_a_close_is_not_lost_if_the_coordinator_of_another_group_does_not_answer_in_its_poll(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.kafka.put("old", {A: 900}, make_member(A))
    rig.poll(UNKNOWN)
    rig.kafka.delete("old")
    rig.poll(6)
    rig.kafka.ends[A] = 900
    describe = rig.kafka.describe

    def describe_all_but_the_old_one(groups: Collection[str]) -> Mapping[str, Description | Failure]:
        return cannot_answer(groups) if "old" in groups else describe(groups)

    with monkeypatch.context() as patched:
        patched.setattr(rig.kafka, "describe", describe_all_but_the_old_one)
        assert rig.poll() == []
        assert rig.counted == {"_timed_out": 1}
    [event] = rig.poll()
    assert (event.consumer, event.kind) == ("g", Kind.CLOSE)


def test_a_group_without_a_verdict_is_not_reported_as_deleted(rig: Rig) -> None:
    rig.kafka.put("g", {}, make_member())
    rig.poll(6)
    rig.kafka.delete("g")
    rig.poll(20)
    assert rig.all_events() == []


def test_a_group_that_one_list_lacks_is_not_deleted(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(UNKNOWN)
    rig.kafka.unlisted = {"g"}
    rig.poll(20)
    assert Kind.DELETED not in {event.kind for event in rig.all_events()}
    rig.kafka.unlisted = set()
    assert [event.status_text for event in rig.poll()] == ["ERR"]


def test_incomplete_lists_cause_no_deletion(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(6)
    rig.kafka.delete("g")
    rig.kafka.is_complete = False
    rig.poll(20)
    assert Kind.DELETED not in {event.kind for event in rig.all_events()}


def test_a_recreated_group_is_a_new_one(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(6)
    rig.kafka.delete("g")
    rig.poll(10)
    rig.kafka.put("g", {A: 900}, make_member(A))
    assert rig.poll() == []


def test_a_group_without_authorization_is_named_and_counted_and_does_not_affect_others(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.kafka.put("secret", {A: 1000}, make_member(A))
    rig.kafka.failures["secret"] = rig.kafka.undescribed["secret"] = DENIED
    with structlog.testing.capture_logs() as logs:
        events = rig.poll(6)
    assert [event.consumer for event in events] == ["g"]
    assert rig.counted == {"group_authorization_failed": 6}
    assert [(line["event"], line["what"], line["kafka_error"]) for line in logs] == [
        ("cannot be watched", "group secret", "group_authorization_failed")
    ]
    assert rig.health()["secret"] == GroupHealth("secret", "Stable", None, None, 0, None, None)


def test_an_old_lag_is_not_reported_as_a_new_one(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(6)
    rig.kafka.failures["g"] = Failure("request_timed_out", "too slow")
    assert rig.poll() == []
    del rig.kafka.failures["g"]
    with structlog.testing.capture_logs() as logs:
        assert len(rig.poll()) == 1
    assert [(line["event"], line["what"]) for line in logs] == [("can be watched again", "group g")]


def test_the_state_of_a_group_without_a_description_shows_whether_it_has_members(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.kafka.undescribed["g"] = DENIED
    [event] = rig.poll(UNKNOWN)
    assert [each.status_text for each in event.partitions] == ["STALL"]
    assert dict(event.extras) == {"state": "Stable", "rebalances": "0"}


def test_a_deleted_topic_is_not_part_of_the_verdict(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900, B: 1000}, make_member(A, B))
    rig.poll(UNKNOWN)
    rig.kafka.failures[A] = Failure("unknown_topic_or_part", "gone")
    [event] = rig.poll()
    assert [each.partition for each in event.partitions] == [1]
    assert (event.status_text, event.kind) == ("OK", Kind.CLOSE)
    assert not rig.counted


def test_a_partition_without_a_leader_keeps_its_last_log_end_and_is_reported(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(6)
    rig.kafka.failures[A] = Failure("leader_not_available", "no leader")
    [event] = rig.poll()
    assert event.total_lag == 100
    assert rig.counted == {"leader_not_available": 1}


def test_the_lag_is_unknown_once_a_log_end_is_older_than_five_minutes(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900, B: 990}, make_member(A, B))
    rig.poll(6)
    rig.kafka.failures[A] = Failure("topic_authorization_failed", "denied")
    [event] = rig.poll(30)
    assert [each.current_lag for each in event.partitions] == [100, 10]
    [event] = rig.poll()
    assert [each.current_lag for each in event.partitions] == [None, 10]
    assert (event.total_lag, event.complete) == (10, 0.5)
    rig.kafka.failures.clear()
    [event] = rig.poll()
    assert (event.total_lag, event.complete) == (110, 1)


def test_a_cluster_that_does_not_answer_is_reported_once_and_watched_again_when_it_answers(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(6)
    rig.kafka.down = ClusterError("_transport", "Local: Broker transport failure")
    with structlog.testing.capture_logs() as logs:
        assert rig.poll(3) == []
        rig.kafka.down = None
        assert len(rig.poll()) == 1
    assert [line["event"] for line in logs] == ["cannot be watched", "can be watched again"]
    assert rig.counted == {"_transport": 3}
    assert rig.reports[-4:] == ["Local: Broker transport failure"] * 3 + [None]


def test_the_same_problem_with_another_text_is_not_reported_again(rig: Rig) -> None:
    with structlog.testing.capture_logs() as logs:
        for broker in ("kafka-1", "kafka-2", "kafka-1"):
            rig.kafka.down = ClusterError("_timed_out", f"Local: Timed out (the last trouble with a broker: {broker})")
            rig.poll()
        rig.kafka.down = ClusterError("_authentication", "SASL authentication failed")
        rig.poll()
    assert [line["kafka_error"] for line in logs] == ["_timed_out", "_authentication"]


def test_a_group_excluded_since_the_last_start_is_forgotten_and_not_reported_as_deleted(tmp_path: Path) -> None:
    rig = Rig(file_keeper(tmp_path / "state"))
    rig.kafka.put("console-consumer-1", {A: 900}, make_member(A))
    rig.poll(6)
    rig.watcher.close()
    rig.exclude = "^console-"
    rig.restart()
    rig.poll(12)
    assert rig.all_events("console-consumer-1") == []


def test_values_that_only_kafka_has_are_returned_with_the_verdict(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900, B: 950}, make_member(A), make_member(B, host="/10.0.0.2"))
    rig.kafka.starts = {A: 920, B: 910}
    rig.poll()
    rig.kafka.put("g", {A: 900, B: 950}, make_member(A, B))
    rig.poll()
    assert rig.health() == {"g": GroupHealth("g", "Stable", 1, 1, 1, 20, 0, 0, 0, open_transactions=0)}


def test_a_lag_that_retention_deleted_is_lost_as_long_as_something_is_left_to_read_and_no_incident_after(
    rig: Rig,
) -> None:
    rig.kafka.put("g", {A: 100}, make_member(A))
    [event] = rig.poll(UNKNOWN)
    assert (event.status_text, event.total_lag) == ("ERR", 900)
    rig.kafka.starts[A] = 990
    [event] = rig.poll()
    assert (event.total_lag, rig.health()["g"].messages_lost) == (10, 890)
    rig.kafka.starts[A] = 1000
    [event] = rig.poll()
    assert (event.kind, event.status_text, event.total_lag) == (Kind.CLOSE, "OK", 0)
    [purged] = event.partitions
    assert (purged.log_start, purged.log_end_offset, purged.position) == (1000, 1000, 1000)
    assert rig.health()["g"].messages_lost == 0
    assert {each.status_text for each in [rig.poll()[0] for _ in range(20)]} == {"OK"}


@pytest.mark.parametrize("members", [(), (make_member(A),)], ids=["no member", "an idle member"])
def test_a_group_with_nothing_to_read_is_ok_until_it_does_not_read_what_comes_then(
    rig: Rig, members: tuple[GroupMember, ...]
) -> None:
    rig.kafka.put("g", {A: 100}, *members)
    rig.kafka.starts[A] = 1000
    events = [event for _ in range(20) for event in rig.poll()]
    assert {(event.status_text, event.total_lag) for event in events} == {("OK", 0)}
    rig.kafka.ends[A] = 1007
    events = [event for _ in range(UNKNOWN) for event in rig.poll()]
    assert (events[0].status_text, events[-1].status_text, events[-1].total_lag) == ("OK", "ERR", 7)


def test_a_lag_never_counts_what_retention_deletes_while_the_group_reads(rig: Rig) -> None:
    rig.kafka.put("g", {A: 400}, make_member(A))
    rig.poll(6)
    for start in range(500, 1000, 50):
        rig.kafka.starts[A] = start
        [event] = rig.poll(reads=5, writes=5)
        assert event.partitions[0].log_start == start
        assert event.total_lag == rig.kafka.ends[A] - start


def test_an_offset_past_the_log_end_in_two_polls_in_a_row_is_an_error_without_a_lag(rig: Rig) -> None:
    rig.kafka.put("g", {A: 10_000, B: 970}, make_member(A, B))
    rig.poll()
    assert rig.health()["g"].beyond_end == 0
    [event] = rig.poll()
    assert (event.status_text, event.kind, event.total_lag) == ("ERR", Kind.INCIDENT, 30)
    assert event.complete == 0
    beyond, other = event.partitions
    assert (beyond.status_text, beyond.current_lag, beyond.log_end_offset) == ("BEYOND_END", None, 1000)
    assert (other.status_text, event.max_lag) == ("OK", other)
    assert rig.health()["g"].beyond_end == 1
    [event] = rig.poll(10)
    assert (event.complete, event.incident_id) == (0.5, rig.all_events()[0].incident_id)
    rig.kafka.offsets["g"] = {A: 1000, B: 1000}
    [event] = rig.poll()
    assert (event.kind, event.status_text, event.total_lag) == (Kind.CLOSE, "OK", 0)


def test_a_group_whose_only_offset_is_past_the_log_end_has_no_total_lag(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1001})
    [event] = rig.poll(2)
    assert (event.status_text, event.total_lag) == ("ERR", None)


def test_an_offset_past_the_log_end_in_one_poll_is_no_error_but_its_lag_is_unknown(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    rig.poll(12)
    rig.kafka.offsets["g"][A] = 1010
    [event] = rig.poll()
    assert (event.status_text, event.total_lag) == ("OK", None)
    rig.kafka.ends[A] = 1020
    [event] = rig.poll()
    assert (event.status_text, event.total_lag) == ("OK", 10)


def test_a_log_end_that_cannot_be_read_proves_nothing_about_the_offset(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    rig.poll(12)
    rig.kafka.failures[A] = Failure("leader_not_available", "no leader")
    assert {event.status_text for _ in range(5) for event in rig.poll(reads=10)} == {"OK"}


def test_a_consumer_that_never_commits_is_an_error_once_records_arrived_and_a_window_passed(rig: Rig) -> None:
    rig.kafka.put("g", {}, make_member(A, B, host="/10.1.2.3"))
    assert rig.poll(5) == []
    assert rig.health()["g"].uncommitted == 2
    [event] = rig.poll()
    assert (event.status_text, event.total_lag, event.partition_count, event.complete) == ("OK", None, 2, 0)
    assert [(each.status_text, each.current_lag, each.at_most, each.owner) for each in event.partitions] == [
        ("NEVER_COMMITTED", None, 1000, "/10.1.2.3")
    ] * 2
    assert {event.status_text for _ in range(10) for event in rig.poll()} == {"OK"}
    *before, event = [event for _ in range(10) for event in rig.poll(writes=1)]
    assert {each.status_text for each in before} == {"OK"}  # the first records need not be committed at once
    assert (event.status_text, event.kind, event.total_lag) == ("ERR", Kind.INCIDENT, None)
    rig.kafka.offsets["g"] = {A: 1010, B: 1010}
    [event] = rig.poll(6)
    assert (event.status_text, event.total_lag, rig.health()["g"].uncommitted) == ("OK", 0, 0)
    assert [each.kind for each in rig.all_events()].count(Kind.CLOSE) == 1


def test_a_partition_without_a_committed_offset_is_not_in_the_lag_of_its_group(rig: Rig) -> None:
    rig.kafka.put("g", {A: 990}, make_member(A, B))
    rig.poll(11)
    [event] = rig.poll(reads=5, writes=5)
    assert (event.total_lag, event.complete, event.partition_count) == (10, 0.5, 2)
    assert event.max_lag == event.partitions[0]
    assert event.status_text == "OK"
    statuses = [event.status_text for _ in range(9) for event in rig.poll(reads=5, writes=5)]
    assert statuses == ["OK"] * 8 + ["ERR"]


def test_a_partition_added_to_a_topic_that_the_group_reads_counts_before_it_has_an_owner_and_is_no_error_yet(
    rig: Rig,
) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    rig.poll(12, reads=10, writes=10)
    rig.kafka.counts["orders"] = 2
    events = [event for _ in range(20) for event in rig.poll(reads=10, writes=10)]
    assert {event.status_text for event in events} == {"OK"}
    assert (events[-1].partition_count, events[-1].total_lag, events[-1].complete) == (2, 0, 0.5)
    added = events[-1].partitions[1]
    assert (added.status_text, added.owner, added.at_most) == ("NEVER_COMMITTED", "", 1320)
    assert rig.health()["g"].uncommitted == 1
    rig.kafka.put("g", rig.kafka.offsets["g"], make_member(A, B))
    statuses = [event.status_text for _ in range(11) for event in rig.poll(reads=10, writes=10)]
    assert statuses == ["OK"] * 10 + ["ERR"]


def test_a_consumer_that_fails_and_starts_again_and_again_without_a_commit_is_one_incident(rig: Rig) -> None:
    rig.kafka.put("g", {}, make_member(A, B))
    events = rig.poll(6)
    for _ in range(12):
        rig.kafka.put("g", {})
        events += [event for _ in range(2) for event in rig.poll(writes=1)]
        rig.kafka.put("g", {}, make_member(A, B))
        events += [event for _ in range(2) for event in rig.poll(writes=1)]
    statuses = [event.status_text for event in events]
    assert statuses == sorted(statuses, reverse=True)  # OK, then ERR to the end
    assert statuses.count("ERR") > 20
    assert len({event.incident_id for event in events if event.status_text == "ERR"}) == 1
    rig.kafka.put("g", {A: rig.kafka.ends[A], B: rig.kafka.ends[B]})
    [event] = rig.poll(12)
    assert event.status_text == "OK"


def test_an_idle_consumer_at_the_end_of_the_log_is_no_error_without_a_committed_offset(rig: Rig) -> None:
    rig.kafka.put("g", {}, make_member(A))
    assert {event.status_text for _ in range(30) for event in rig.poll()} == {"OK"}


def test_records_that_are_already_deleted_are_no_reason_for_an_error(rig: Rig) -> None:
    rig.kafka.put("g", {}, make_member(A))
    rig.poll(8)
    rig.kafka.ends[A] = rig.kafka.starts[A] = 1500
    assert {event.status_text for _ in range(12) for event in rig.poll()} == {"OK"}


def test_a_group_that_keeps_its_offsets_elsewhere_has_no_uncommitted_partitions(rig: Rig) -> None:
    rig.watcher.offsets_elsewhere = re.compile("^flink-")
    rig.kafka.put("flink-a", {}, make_member(A))
    assert rig.poll(30, writes=1) == []
    assert rig.health()["flink-a"].uncommitted == 0


def test_a_never_committed_incident_survives_a_restart(tmp_path: Path) -> None:
    rig = Rig(file_keeper(tmp_path / "state"))
    rig.kafka.put("g", {}, make_member(A))
    [before] = rig.poll(12, writes=1)
    assert before.status_text == "ERR"
    rig.watcher.close()
    rig.restart()
    events = [event for _ in range(3) for event in rig.poll(writes=1)]
    assert {(event.status_text, event.incident_id) for event in events} == {("ERR", before.incident_id)}


ALONE: tuple[GroupMember, ...] = ()
ONE = (make_member(A),)


@pytest.mark.parametrize("first", range(15))
@pytest.mark.parametrize("members", [ALONE, ONE], ids=["no member", "a member"])
def test_a_consumer_that_commits_every_window_and_a_half_is_ok_from_the_start_and_found_when_it_dies(
    rig: Rig, members: tuple[GroupMember, ...], first: int
) -> None:
    rig.kafka.put("g", {A: 990}, *members)
    rig.polled = first
    assert set(rig.statuses(15, 200 - first)) == {"OK"}
    dead = rig.statuses(None, 3 * 15)
    assert dead[-1] == "ERR"
    assert dead[:15] == ["OK"] * 15


@pytest.mark.parametrize("first", range(14, 28, 3))
def test_a_consumer_without_members_that_commits_every_three_windows_is_ok_once_a_commit_was_seen(
    rig: Rig, first: int
) -> None:
    rig.kafka.put("g", {A: 990})
    rig.polled = first
    assert set(rig.statuses(30, 300)) == {"OK"}
    assert rig.statuses(None, 3 * 30)[-1] == "ERR"


def test_a_rhythm_survives_a_restart(tmp_path: Path) -> None:
    rig = Rig(file_keeper(tmp_path / "state"))
    rig.kafka.put("g", {A: 1000})
    rig.statuses(30, 95)
    rig.watcher.close()
    rig.restart()
    assert set(rig.statuses(30, 100)) == {"OK"}


def test_a_dead_consumer_that_commits_often_is_found_within_two_windows(rig: Rig) -> None:
    for members in (ONE, ALONE):
        rig.kafka.put("g", {A: rig.kafka.ends[A]}, *ONE)
        assert set(rig.statuses(1, 40)) == {"OK"}
        rig.kafka.put("g", rig.kafka.offsets["g"], *members)
        assert rig.statuses(None, 12)[-1] == "ERR"
        assert rig.statuses(1, 2)[-1] == "OK"


def test_an_outage_is_not_taken_for_the_rhythm_of_a_group(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    rig.statuses(1, 20)
    assert rig.statuses(None, 300)[-1] == "ERR"
    assert rig.statuses(1, 20)[-1] == "OK"
    assert rig.statuses(None, 12)[-1] == "ERR"


def test_a_partition_that_is_new_to_a_group_is_expected_to_be_committed_as_often_as_the_others(rig: Rig) -> None:
    rig.kafka.put("g", {A: 990})
    rig.statuses(30, 125)
    rig.kafka.offsets["g"][B] = rig.kafka.ends[B]
    assert set(rig.statuses(30, 150)) == {"OK"}


def test_a_lag_that_happens_to_go_up_is_no_warning_before_it_exceeds_what_arrives_between_two_commits(rig: Rig) -> None:
    def poll_with(lag: int) -> str:
        rig.kafka.offsets["g"] = {A: rig.kafka.ends[A] + 10 - lag}
        return [event.status_text for event in rig.poll(writes=10)][-1]

    rig.kafka.put("g", {A: 1000}, *ONE)
    rig.statuses(1, 20)
    assert {poll_with(lag) for _ in range(20) for lag in (11, 11, 12, 13, 13, 14, 15, 16, 17, 18, 19)} == {"OK"}
    slower = [poll_with(lag) for lag in range(11, 50, 2)]
    assert slower == ["OK"] * slower.index("WARN") + ["WARN"] * slower.count("WARN")
    assert slower.index("WARN") > 9


def test_time_without_messages_is_no_silence(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    rig.statuses(1, 20)
    rig.kafka.offsets["g"] = {A: rig.kafka.ends[A]}
    assert {event.status_text for _ in range(500) for event in rig.poll()} == {"OK"}
    rig.statuses(1, 5)
    assert rig.statuses(None, 12)[-1] == "ERR"


def last_commit_ms(event: LagEvent) -> int | None:
    assert event.max_lag is not None
    return event.max_lag.committed_at_ms(event.max_lag.end)


def test_the_last_commit_is_the_last_poll_that_saw_the_offset_move_and_unknown_before_one(tmp_path: Path) -> None:
    rig = Rig(file_keeper(tmp_path / "state"))
    rig.kafka.put("g", {A: 900}, make_member(A))
    [event] = rig.poll(12)
    assert last_commit_ms(event) is None
    [event] = rig.poll(reads=1)
    moved_ms = rig.clock.wall
    assert last_commit_ms(event) == moved_ms
    [event] = rig.poll(3)
    assert last_commit_ms(event) == moved_ms
    rig.watcher.close()
    rig.restart()
    [event] = rig.poll(2)
    assert last_commit_ms(event) == moved_ms
    [first] = event.partitions
    assert first.committed_at_ms(first.start) is None


def test_after_the_clock_was_set_back_the_time_of_the_last_commit_is_unknown(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(12, reads=1)
    rig.clock.wall -= 3_600_000
    [event] = rig.poll(7)
    assert last_commit_ms(event) is None


def test_after_the_clock_was_set_back_the_next_verdict_needs_half_a_window(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(12, reads=10, writes=10)
    rig.clock.wall -= 3_600_000
    assert [len(rig.poll(reads=10, writes=10)) for _ in range(5)] == [0, 0, 0, 0, 1]


def test_one_long_silence_hides_the_next_one_for_at_most_twelve_windows(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    rig.statuses(None, 400)
    rig.kafka.offsets["g"] = {A: rig.kafka.ends[A]}
    assert set(rig.statuses(None, 119)) == {"OK"}
    assert rig.statuses(None, 5)[-1] == "ERR"


def test_a_partition_that_never_had_a_commit_waits_while_the_group_of_the_new_protocol_reconciles(rig: Rig) -> None:
    first, second = make_member(A), make_member(B, host="/10.0.0.2")
    rig.kafka.counts = {"orders": 2}
    rig.kafka.put("g", {A: 1000}, first, second)
    assert rig.poll(20, reads=10, writes=10)[-1].status_text == "ERR"
    rig.kafka.put("g", rig.kafka.offsets["g"], first, state="Unknown")
    assert rig.poll(reads=10, writes=10)[-1].status_text == "ERR"


def test_a_partition_without_an_owner_in_a_group_with_members_is_stopped_and_not_stalled(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000, B: 900}, make_member(A))
    for _ in range(30):
        rig.kafka.offsets["g"][A] += 10
        events = rig.poll(writes=10)
    [event] = events
    assert [(each.partition, each.status_text) for each in event.partitions] == [(0, "OK"), (1, "STOP")]


def test_a_topic_whose_records_the_group_deletes_itself_is_not_in_the_retention_margin(tmp_path: Path) -> None:
    """Kafka Streams deletes records of its repartition topics up to its commits; a source topic has a real margin."""
    rig = Rig(file_keeper(tmp_path / "state"))
    rig.kafka.put("g", {A: 900, B: 900}, make_member(A, B))
    for poll in range(30):
        rig.poll(reads=10, writes=10)
        if poll % 3 == 2:
            rig.kafka.starts[B] = rig.kafka.offsets["g"][B]
    assert rig.health()["g"].retention_margin == rig.kafka.offsets["g"][A]
    rig.watcher.close()
    rig.restart()
    rig.poll(reads=10, writes=10)
    assert rig.health()["g"].retention_margin == rig.kafka.offsets["g"][A]
    rig.kafka.starts[B] = rig.kafka.offsets["g"][B] + 5  # the next purge, between two requests of one poll
    rig.poll()
    assert rig.health()["g"].messages_lost == 0


def test_a_topic_that_retention_empties_up_to_the_group_stays_in_the_retention_margin(rig: Rig) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    for _ in range(10):
        rig.kafka.starts[A] = rig.kafka.ends[A] + 10
        rig.poll(reads=10, writes=10)
    rig.kafka.ends[A] += 50
    rig.poll(2)
    assert rig.health()["g"].retention_margin == 0


def test_the_next_poll_is_an_interval_after_the_start_of_this_one(rig: Rig) -> None:
    assert rig.watcher.step() == 10.0


def test_the_end_closes_all_sinks_and_clients(rig: Rig) -> None:
    rig.poll()
    rig.watcher.close()
    assert rig.kafka.is_closed


def test_any_name_can_be_a_group(rig: Rig) -> None:
    names: list[Any] = ["", "a/b", "früh 🥕", "x" * 1000, 'q"\\\n']
    for name in names:
        rig.kafka.put(name, {A: 900}, make_member(A))
    assert sorted(event.consumer for event in rig.poll(6)) == sorted(names)
