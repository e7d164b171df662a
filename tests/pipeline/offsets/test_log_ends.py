"""`LogEndPolls` reads the log ends of any number of partitions. tests/e2e/test_evaluate.py has a real broker."""

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from karrot.clock import SystemClock
from karrot.event import TopicPartition
from karrot.pipeline.offsets.log_ends import LogEndLook, LogEndPolls, append_ends
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import repeated
from karrot.watch.cluster_interface import ClusterError, Failure
from support.manual_clock import ManualClock
from support.waiting import wait_for


@dataclass
class FiveLogs:
    """A topic with five partitions. One of them has no leader. Kafka answers some requests, and then no more."""

    answers: int = 99
    asked: list[int] = field(default_factory=list)

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        return dict.fromkeys(topics, 5)

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        no_leader = Failure("leader_not_available", "no leader")
        return {place: no_leader if place.partition == 4 else 7 for place in places}

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        self.asked.append(len(places))
        if len(self.asked) > self.answers:
            raise ClusterError("timed_out", "no broker answered within 10 s")
        no_leader = Failure("leader_not_available", "no leader")
        return {place: no_leader if place.partition == 3 else 100 + place.partition for place in places}


def polls_of(kafka: FiveLogs, clock: ManualClock) -> tuple[LogEndPolls, list[str]]:
    told: list[str] = []
    every = timedelta(seconds=30)
    return LogEndPolls(kafka, every, clock, lambda summary: told.append(str(summary)), at_once=2), told


def test_a_poll_of_many_partitions_takes_several_requests_and_leaves_out_no_partition(
    spark: SparkSession, tmp_path: Path
) -> None:
    kafka, clock, tables = FiveLogs(), ManualClock(), Tables(str(tmp_path))
    polls, told = polls_of(kafka, clock)
    look = polls.taken(["t"])
    assert (kafka.asked, told) == ([2, 2, 1], ["4 log ends, 1 left out"])
    polls.if_due()
    assert polls.taken(["t"]) is None
    assert kafka.asked == [2, 2, 1]
    assert look
    assert append_ends(spark, tables, "prod", look) == 4
    rows = tables.read(spark, "ends").orderBy("partition").collect()
    assert [(row.partition, row.start_offset, row.end_offset, row.observed_at_ms) for row in rows] == [
        (number, None if number == 4 else 7, 100 + number, clock.wall_ms()) for number in (0, 1, 2, 4)
    ]


def test_a_stopped_poll_sends_no_further_request() -> None:
    kafka = FiveLogs()
    polls, told = polls_of(kafka, ManualClock())
    polls.stop.set()
    polls.taken(["t"])
    assert (kafka.asked, told) == ([], ["0 log ends, 5 left out"])


def test_a_poll_that_kafka_stops_answering_keeps_the_samples_that_it_has_and_is_repeated_by_the_next_batch() -> None:
    kafka = FiveLogs(answers=1)
    polls, told = polls_of(kafka, ManualClock())
    look = polls.taken(["t"])
    assert told == ["log ends: Kafka did not answer after 2 partitions: no broker answered within 10 s"]
    assert look
    assert [each.partition for each in look.places] == [0, 1]
    kafka.answers = 99
    look = polls.taken(["t"])
    assert look
    assert len(look.places) == 4


def test_a_judge_gets_no_batch_without_the_log_ends_of_its_new_topics() -> None:
    kafka = FiveLogs(answers=1)
    polls, _ = polls_of(kafka, ManualClock())
    with pytest.raises(ClusterError, match="no broker answered within 10 s"):
        polls.taken(["t"], needs_all=True)
    kafka.answers = 99
    polls.stop.set()
    with pytest.raises(ClusterError, match="stopped"):
        polls.taken(["t"], needs_all=True)
    polls.stop.clear()
    assert polls.taken(["t"], needs_all=True)


def _shown(look: LogEndLook | None) -> list[tuple[str, int, int]]:
    assert look
    return [*zip((each.topic for each in look.places), look.at_ms.tolist(), look.offset.tolist(), strict=True)]


class _Growing:
    """A Kafka in which each topic has one partition, and each answer is one message further."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []
        self.deleted = {"deleted"}

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        self.asked.append({*topics})
        return {topic: 1 for topic in topics if topic not in self.deleted}

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        return dict.fromkeys(places, 0)

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        return dict.fromkeys(places, len(self.asked))


def test_kafka_is_asked_for_new_topics_at_once_and_for_others_after_the_interval() -> None:
    clock, kafka = ManualClock(), _Growing()
    polls = LogEndPolls(kafka, timedelta(seconds=10), clock)
    began_ms = clock.wall_ms()
    assert _shown(polls.taken(["a"])) == [("a", began_ms, 1)]
    assert polls.taken(["a"]) is None
    look = polls.taken(["b", "deleted"])
    assert sorted(_shown(look)) == [("a", began_ms, 2), ("b", began_ms, 2)]
    assert look
    assert {*look.topics} == {"a", "b", "deleted"}
    clock.advance(10_000)
    polls.if_due()
    look = polls.taken([])
    assert sorted(_shown(look)) == [("a", began_ms + 10_000, 3), ("b", began_ms + 10_000, 3)]
    assert look
    assert {*look.topics} == {"a", "b"}
    clock.advance(10_000)
    polls.if_due()
    assert kafka.asked == [{"a"}, {"a", "b", "deleted"}, {"a", "b", "deleted"}, {"a", "b"}]


def test_a_topic_that_one_poll_lacks_still_exists() -> None:
    clock, kafka = ManualClock(), _Growing()
    polls = LogEndPolls(kafka, timedelta(seconds=10), clock)
    seen = list[tuple[set[str], int]]()
    for deleted in ((), ("b",), (), ("b",), ("b",)):
        kafka.deleted = {*deleted}
        look = polls.taken(["a", "b"] if not seen else [])
        assert look
        seen.append(({*look.topics}, len(look.places)))
        clock.advance(10_000)
        polls.if_due()
    assert seen == [({"a", "b"}, 2), ({"a", "b"}, 2), ({"a", "b"}, 1), ({"a", "b"}, 2), ({"a", "b"}, 1)]
    look = polls.taken([])
    assert look
    assert {*look.topics} == {"a"}


def test_topics_that_are_added_during_a_poll_are_in_the_next_poll() -> None:
    clock, kafka = ManualClock(), _Growing()
    polls = LogEndPolls(kafka, timedelta(seconds=10), clock, topics=frozenset(["a"]))
    adding = threading.Thread(target=lambda: polls.add(["b"]))

    def is_added_meanwhile(_summary: object) -> None:
        if not kafka.asked[1:]:
            adding.start()
            adding.join(0.2)  # the lock of the poll, or the end of the addition

    polls.tell = is_added_meanwhile
    for _ in range(2):
        polls.if_due()
        adding.join()
        clock.advance(10_000)
    assert kafka.asked == [{"a"}, {"a", "b"}]


def test_kafka_is_also_asked_between_batches_for_the_topics_of_the_earlier_ones() -> None:
    clock, kafka = SystemClock(), _Growing()
    polls = LogEndPolls(kafka, timedelta(milliseconds=50), clock)
    with repeated(polls.if_due, threading.Event(), 0.01):
        polls.taken(["a"])
        wait_for(lambda: len(kafka.asked) >= 4)
    found = _shown(polls.taken(["a"]))
    assert kafka.asked == [{"a"}] * len(kafka.asked)
    assert [offset for *_, offset in found] == [*range(2, 2 + len(found))]
    assert len(found) >= 3
    times = [at_ms for _, at_ms, _ in found]
    assert times == sorted(times)


def test_log_ends_that_no_batch_takes_become_fewer_and_the_newest_stay() -> None:
    clock, kafka = ManualClock(), _Growing()
    polls = LogEndPolls(kafka, timedelta(seconds=10), clock)
    polls.taken(["a"])
    for _ in range(999):
        clock.advance(10_000)
        polls.if_due()
        found = [look.offset.tolist()[0] for look in polls.waiting]
        assert len(found) <= 128
        assert found == sorted(found)
        assert found[-1] == len(kafka.asked)
    assert len(found) >= 64
    assert [offset for *_, offset in _shown(polls.taken(["a"]))] == found
