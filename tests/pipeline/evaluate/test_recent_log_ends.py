"""The driver keeps the newest log ends. Those that Kafka does not give are told, and asked for again."""

import threading
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

import numpy as np

from karrot.clock import SystemClock
from karrot.event import LogEnd, TopicPartition
from karrot.pipeline.evaluate.bucket_state import source_key
from karrot.pipeline.evaluate.recent_log_ends import LogEndLook, LogEndsFromKafka, RecentLogEnds
from karrot.pipeline.offsets.log_ends import PollSummary
from karrot.pipeline.stream.streaming_queries import repeated
from karrot.watch.cluster_interface import ClusterError, Failure
from support.manual_clock import ManualClock
from support.pipeline.log_end_looks import look_of
from support.waiting import wait_for


class _Away:
    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        raise ClusterError("unreachable", f"no broker for {[*topics]}")

    def log_starts(self, places: Collection[Any]) -> Mapping[Any, Any]:
        raise ClusterError("unreachable", f"no broker for {[*places]}")

    log_ends = log_starts


class _Growing:
    """A Kafka with one topic, where each answer is one message further."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        self.asked.append({*topics})
        return {topic: 1 for topic in topics if topic != "deleted"}

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        return dict.fromkeys(places, 0)

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        unknown = Failure("leader_not_available", "no leader")
        return {place: unknown if place.topic == "unknown" else len(self.asked) for place in places}


def _told(summary: PollSummary) -> None:
    raise AssertionError(summary)


def _shown(look: LogEndLook | None) -> list[tuple[TopicPartition, int, int]]:
    assert look
    return [*zip(look.places, look.at_ms.tolist(), look.offset.tolist(), strict=True)]


def test_a_kafka_that_does_not_answer_is_told_and_asked_again_with_the_next_batch() -> None:
    told: list[str] = []
    ends = LogEndsFromKafka(_Away(), timedelta(seconds=10), lambda summary: told.append(str(summary)), ManualClock())
    assert [ends.look(["t"], (0, now_ms)) for now_ms in (1, 2)] == [None, None]
    assert told == ["log ends: Kafka did not answer: no broker for ['t']"] * 2


def test_kafka_is_asked_for_new_topics_at_once_and_for_others_after_the_interval() -> None:
    clock, kafka = ManualClock(), _Growing()
    ends = LogEndsFromKafka(kafka, timedelta(seconds=10), _told, clock)
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    assert _shown(ends.look(["a"], (0, 1))) == [(a, 1, 1)]
    assert ends.look(["a"], (1, 2)) is None
    look = ends.look(["a", "b", "unknown", "deleted"], (2, 3))
    assert sorted(_shown(look)) == [(a, 3, 2), (b, 3, 2)]
    assert look
    assert {*look.topics} == {"a", "b", "unknown"}
    clock.advance(10_000)
    assert _shown(ends.look(["a"], (3, 10_003))) == [(a, 10_003, 3)]


def test_kafka_is_also_asked_between_batches_for_the_topics_of_the_last_one() -> None:
    clock, kafka = SystemClock(), _Growing()
    ends = LogEndsFromKafka(kafka, timedelta(milliseconds=50), _told, clock)
    with repeated(ends.ask_if_due, threading.Event(), 0.01):
        ends.look(["a"], (0, began_ms := clock.wall_ms()))
        wait_for(lambda: len(kafka.asked) >= 4)
    found = _shown(ends.look(["a"], (began_ms, clock.wall_ms())))
    assert kafka.asked == [{"a"}] * len(kafka.asked)
    assert [offset for *_, offset in found] == [*range(2, 2 + len(found))]
    assert len(found) >= 3
    times = [at_ms for _, at_ms, _ in found]
    assert times == sorted(times)
    assert times[0] - began_ms >= 45  # both clocks round to milliseconds


def test_log_ends_that_no_batch_takes_become_fewer_and_the_newest_stay() -> None:
    clock, kafka = ManualClock(), _Growing()
    ends = LogEndsFromKafka(kafka, timedelta(seconds=10), _told, clock)
    ends.look(["a"], (0, 1))
    for _ in range(999):
        clock.advance(10_000)
        ends.ask_if_due()
    found = [offset for *_, offset in _shown(ends.look(["a"], (0, 1)))]
    assert 64 <= len(found) <= 129
    assert found == sorted(found)
    assert found[-1] == 1000


def _look(at_ms: int, **ends: int) -> LogEndLook:
    return look_of([(TopicPartition(topic, 0), LogEnd(at_ms, end)) for topic, end in ends.items()], {*ends})


def test_each_partition_keeps_its_newest_log_ends_in_order_of_time() -> None:
    history = RecentLogEnds(intervals=2, topic_keys={"a": 9, "b": 5, "gone": 7})
    history.add(_look(1, a=10, b=1, gone=1))
    for number in range(40):
        history.add(_look(100 + number, a=100 + number, b=number))
        history.add(_look(100 + number, a=101 + number, b=number))  # the second look of the batch
    assert len(history.as_arrays().ends.source) == 82
    history.forget_old()
    kept = range(137, 140)
    for each in (history, RecentLogEnds.from_table(history.to_table(), 2)):
        each.topic_keys = {"a": 9, "b": 5}
        found = each.as_arrays()
        keys = source_key(np.array([9, 5]), np.array([0, 0]))
        assert found.keys.tolist() == sorted(keys.tolist())
        assert found.topics == {"a": 1, "b": 1}
        rows = [*zip(*(column.tolist() for column in found.ends), strict=True)]
        assert rows == [
            (source, at_ms, at_ms + 1 if source == found.source_of(keys)[0] else at_ms - 100, 0)
            for source in (0, 1)
            for at_ms in kept
        ]


def test_a_deleted_topic_has_no_log_ends() -> None:
    history = RecentLogEnds(intervals=2, topic_keys={"a": 9, "b": 5})
    history.add(_look(1, a=10, b=1))
    history.add(_look(2, a=11))
    assert history.topic_keys == {"a": 9}
    assert history.to_table().to_pylist() == [
        {"topic": "a", "partition": 0, "at_ms": 1, "offset": 10, "start": 0},
        {"topic": "a", "partition": 0, "at_ms": 2, "offset": 11, "start": 0},
    ]
    history.add(_look(3))
    assert [len(column) for column in history.as_arrays().ends] == [0, 0, 0, 0]


def test_a_bucket_gets_only_the_log_ends_of_its_own_partitions() -> None:
    history = RecentLogEnds(intervals=2, topic_keys={"a": 9, "b": 5, "c": 7})
    for at_ms in (1, 2):
        history.add(_look(at_ms, a=10 * at_ms, b=at_ms, c=100 * at_ms))
    everything = history.as_arrays()
    keys = source_key(np.array([7, 9, 7, 4]), np.zeros(4, np.int64))
    own = everything.only(keys)
    assert own.topics == everything.topics
    assert sorted(own.keys.tolist()) == sorted({*keys[:3].tolist()})
    expected = {keys[0]: [(1, 100), (2, 200)], keys[1]: [(1, 10), (2, 20)]}
    rows = [*zip(*(column.tolist() for column in own.ends), strict=True)]
    assert rows == sorted(rows)
    for key, found in expected.items():
        [source] = own.source_of(np.array([key]))
        assert [row[1:3] for row in rows if row[0] == source] == found
    assert own.source_of(keys[3:]).tolist() == [-1]
    assert [len(column) for column in everything.only(keys[3:]).ends] == [0, 0, 0, 0]
