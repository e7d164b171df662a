"""Offsets that hold no record are no lag, an open transaction is found, and a record that waits is still an error."""

from collections import Counter
from typing import NoReturn

import pytest
import structlog
from watch.test_poll_loop import A, B, Rig

from karrot.event import Kind, LagEvent, TopicPartition
from karrot.signals import signals_of
from karrot.watch import rings
from karrot.watch.cluster_interface import ClusterError, Failure
from support.kafka.in_memory_kafka import make_member

DENIED = Failure("topic_authorization_failed", "Broker: Topic authorization failed")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def statuses(rig: Rig, polls: int, *, writes: int = 0) -> list[str]:
    return [event.status_text for _ in range(polls) for event in rig.poll(writes=writes)]


def the(events: list[LagEvent]) -> LagEvent:
    [event] = events
    return event


def test_a_consumer_that_has_read_all_up_to_the_marker_of_a_transaction_is_ok_and_has_no_lag(rig: Rig) -> None:
    rig.kafka.gaps[A] = {999}
    rig.kafka.put("g", {A: 999}, make_member(A))
    assert statuses(rig, 40) == ["OK"] * 35
    event = the(rig.poll())
    [partition] = event.partitions
    assert (event.total_lag, partition.current_lag, partition.first_unread) == (0, 0, (1000, None))
    assert (partition.end and partition.end.offset, partition.position, partition.log_end_offset) == (999, 1000, 1000)
    assert (signals_of(event).lag_seconds, signals_of(event).catch_up_seconds) == (0, 0)
    assert rig.kafka.reads == [{A: 999}]


def test_many_offsets_of_an_aborted_transaction_are_no_lag_either_and_no_lost_messages(rig: Rig) -> None:
    rig.kafka.gaps[A] = set(range(400, 1000))
    rig.kafka.put("g", {A: 400}, make_member(A))
    assert set(statuses(rig, 15)) == {"OK"}
    rig.kafka.starts[A] = 600
    assert (the(rig.poll()).total_lag, rig.health()["g"].messages_lost) == (0, 0)


def test_records_that_compaction_removed_before_the_first_unread_record_are_no_lag(rig: Rig) -> None:
    rig.kafka.gaps[A] = set(range(900, 990))
    rig.kafka.put("g", {A: 900}, make_member(A))
    event = the(rig.poll(20))
    assert (event.status_text, event.total_lag) == ("ERR", 10)


def test_a_finished_group_without_members_that_has_read_every_record_is_ok(rig: Rig) -> None:
    rig.kafka.gaps[A] = {999}
    rig.kafka.put("g", {A: 999})
    assert set(statuses(rig, 40)) == {"OK"}


def test_a_record_that_waits_is_an_error_with_the_proof(rig: Rig) -> None:
    rig.kafka.put("g", {A: 998}, make_member(A, host="/10.1.2.3"))
    event = the(rig.poll(20))
    [partition] = event.partitions
    assert (event.status_text, partition.status_text, event.total_lag) == ("ERR", "STALL", 2)
    assert partition.first_unread == (998, 1_795_800_000_998)
    rig.poll(40, writes=5)
    assert rig.kafka.reads == [{A: 998}]
    rig.kafka.offsets["g"][A] = rig.kafka.ends[A]
    assert [the(rig.poll(each)).kind for each in (1, 12)] == [Kind.CLOSE, Kind.OBSERVATION]
    assert the(rig.poll()).partitions[0].first_unread is None


def test_a_record_after_a_gap_that_a_group_has_waited_at_is_an_error_only_after_a_silence(rig: Rig) -> None:
    rig.kafka.gaps[A] = {999}
    rig.kafka.put("g", {A: 999}, make_member(A))
    rig.poll(30)
    event = the(rig.poll(writes=1))
    [partition] = event.partitions
    assert (event.status_text, event.total_lag, partition.position) == ("OK", 1, 1000)
    assert statuses(rig, 17) == ["OK"] * 16 + ["ERR"]
    [partition] = the(rig.poll()).partitions
    assert (partition.first_unread, partition.current_lag) == ((1000, 1_795_800_001_000), 1)
    assert rig.kafka.reads == [{A: 999}] * 2


@pytest.mark.parametrize(("writes", "polls"), [(0, 13), (7, 10)])
def test_an_open_transaction_is_an_error_within_two_windows_and_ends_with_the_transaction(
    rig: Rig, writes: int, polls: int
) -> None:
    rig.kafka.put("g", {A: 1000}, make_member(A))
    rig.poll(12)
    rig.kafka.open_from[A] = 1000
    found = [the(rig.poll(writes=max(writes, int(not number)))) for number in range(20)]
    assert [event.status_text for event in found].index("ERR") == polls
    [partition] = found[-1].partitions
    assert (partition.status_text, partition.first_unread) == ("OPEN_TRANSACTION", (1000, None))
    assert found[-1].total_lag == partition.current_lag == rig.kafka.ends[A] - 1000
    assert rig.health()["g"].open_transactions == 1
    del rig.kafka.open_from[A]
    rig.kafka.offsets["g"][A] = rig.kafka.ends[A]
    assert the(rig.poll()).kind is Kind.CLOSE
    assert rig.health()["g"].open_transactions == 0


def test_transactions_that_end_are_not_taken_for_one_that_stays_open(rig: Rig) -> None:
    rig.kafka.gaps[A] = set(range(999, 5000))
    rig.kafka.put("g", {A: 999}, make_member(A))
    seen = []
    for number in range(60):
        rig.kafka.open_from[A] = 1000 + number // 8
        seen += statuses(rig, 1, writes=1)
    assert set(seen) == {"OK"}


def test_a_group_without_members_before_an_open_transaction_is_stopped_as_without_it(rig: Rig) -> None:
    rig.kafka.open_from[A] = 990
    rig.kafka.put("g", {A: 990})
    assert the(rig.poll(30)).partitions[0].status_text == "STOP"


def test_without_the_right_to_read_burrows_rules_apply_and_it_is_said_and_counted_once(rig: Rig) -> None:
    rig.kafka.ends = {TopicPartition("orders", number): 1000 for number in range(50)}
    rig.kafka.unreadable = dict.fromkeys(rig.kafka.ends, DENIED)
    rig.kafka.put("g", dict.fromkeys(rig.kafka.ends, 999), make_member(*rig.kafka.ends))
    with structlog.testing.capture_logs() as logs:
        event = the(rig.poll(60))
    assert {each.status_text for each in event.partitions} == {"STALL"}
    assert {each.first_unread for each in event.partitions} == {None}
    [log] = logs
    assert (log["what"], log["reason"]) == ("unread records (topic_authorization_failed)", DENIED.text)
    assert rig.counted == Counter({"topic_authorization_failed": 1})
    assert len(rig.kafka.reads) == 6


def test_a_client_that_dies_in_a_read_costs_no_verdict(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(_places: object) -> NoReturn:
        raise ClusterError("client_died", "the process with the Kafka client ended")

    monkeypatch.setattr(rig.kafka, "first_unread", die)
    rig.kafka.put("g", {A: 999}, make_member(A))
    assert statuses(rig, 20)[-1] == "ERR"
    assert rig.reports == [None] * 20
    assert rig.counted == Counter({"client_died": 1})


def test_a_poll_reads_a_limited_number_of_partitions_and_every_partition_gets_its_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "MOST_READS", 3)
    places = [TopicPartition("orders", number) for number in range(12)]
    rig.kafka.ends = dict.fromkeys(places, 1000)
    rig.kafka.gaps = {place: {999} for place in places}
    rig.kafka.put("g", dict.fromkeys(places, 999), make_member(*places))
    assert statuses(rig, 20)[2:] == ["OK"] * 13
    assert [len(read) for read in rig.kafka.reads] == [3] * 4
    assert {place for read in rig.kafka.reads for place in read} == set(places)


def test_a_partition_that_could_not_be_read_waits_for_those_that_were_not_read_yet(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "MOST_READS", 3)
    places = [TopicPartition("orders", number) for number in range(12)]
    rig.kafka.ends = dict.fromkeys(places, 1000)
    rig.kafka.unreadable = dict.fromkeys(places, Failure("_timed_out", "late"))
    rig.kafka.put("g", dict.fromkeys(places, 999), make_member(*places))
    rig.poll(12)
    assert {place for read in rig.kafka.reads[:4] for place in read} == set(places)


def test_two_groups_at_one_offset_need_one_read_and_at_two_offsets_two(rig: Rig) -> None:
    rig.kafka.gaps[A] = {998, 999}
    rig.kafka.put("f", {A: 999}, make_member(A))
    rig.kafka.put("g", {A: 999}, make_member(A))
    rig.kafka.put("h", {A: 998}, make_member(A))
    assert {event.status_text for _ in range(20) for event in rig.poll()} == {"OK"}
    assert sorted(read[A] for read in rig.kafka.reads) == [998, 999]


def test_partitions_of_consumers_that_are_slow_or_get_a_record_now_and_then_are_not_read(rig: Rig) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.poll(30, reads=1, writes=10)
    rig.kafka.offsets["g"][A] = rig.kafka.ends[A]
    for _ in range(5):
        rig.poll(20)
        rig.poll(writes=1)
        rig.poll(reads=1)
    assert rig.kafka.reads == []


def test_a_lag_up_to_the_allowed_lag_is_ok(rig: Rig) -> None:
    rig.watcher.allowed_lag = 2
    rig.kafka.put("g", {A: 998, B: 1000}, make_member(A, B))
    assert set(statuses(rig, 15)) == {"OK"}
    rig.kafka.ends[A] += 1
    assert statuses(rig, 18)[-1] == "ERR"


def test_time_with_an_allowed_lag_is_no_silence(rig: Rig) -> None:
    rig.watcher.allowed_lag = 2
    rig.kafka.put("g", {A: 998}, make_member(A))
    for _ in range(5):
        rig.kafka.offsets["g"][A] = rig.kafka.ends[A] - 2
        assert set(statuses(rig, 60)) <= {"OK"}
        rig.kafka.ends[A] += 5
        rig.poll()
    assert statuses(rig, 20)[-1] == "ERR"


def test_an_open_transaction_that_holds_back_no_more_than_the_allowed_lag_is_ok(rig: Rig) -> None:
    rig.watcher.allowed_lag = 1
    rig.kafka.open_from[A] = 999
    rig.kafka.put("g", {A: 999}, make_member(A))
    assert set(statuses(rig, 40)) == {"OK"}


@pytest.mark.parametrize(("failure", "polls"), [(Failure("_timed_out", "late"), 3), (DENIED, 10)])
def test_a_read_that_timed_out_is_repeated_soon_and_one_without_the_right_after_a_window(
    rig: Rig, failure: Failure, polls: int
) -> None:
    rig.kafka.put("g", {A: 900}, make_member(A))
    rig.kafka.unreadable[A] = failure
    rig.poll(5)
    before = len(rig.kafka.reads)
    rig.poll(30)
    assert len(rig.kafka.reads) - before == 30 // polls
