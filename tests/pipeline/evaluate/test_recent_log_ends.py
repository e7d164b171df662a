"""The driver keeps the newest log ends. Those that Kafka does not give are told, and asked for again."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

import numpy as np

from karrot.event import LogEnd, TopicPartition
from karrot.pipeline.evaluate.log_end_lookup import source_key
from karrot.pipeline.evaluate.recent_log_ends import LogEndLook, LogEndsFromKafka, RecentLogEnds
from karrot.watch.cluster_interface import ClusterError


class _Away:
    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        raise ClusterError("unreachable", f"no broker for {[*topics]}")

    def log_starts(self, places: Collection[Any]) -> Mapping[Any, Any]:
        raise ClusterError("unreachable", f"no broker for {[*places]}")

    log_ends = log_starts


def test_a_kafka_that_does_not_answer_is_told_and_asked_again_with_the_next_batch() -> None:
    told: list[str] = []
    ends = LogEndsFromKafka(_Away(), timedelta(seconds=10), lambda summary: told.append(str(summary)))
    assert [ends.look(["t"], (0, now_ms)) for now_ms in (1, 2)] == [None, None]
    assert told == ["log ends: Kafka did not answer: no broker for ['t']"] * 2


def _look(at_ms: int, **ends: int) -> LogEndLook:
    return LogEndLook([(TopicPartition(topic, 0), LogEnd(at_ms, end)) for topic, end in ends.items()], {*ends})


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
            (source, at_ms, at_ms + 1 if source == found.source_of(keys)[0] else at_ms - 100)
            for source in (0, 1)
            for at_ms in kept
        ]


def test_a_deleted_topic_has_no_log_ends() -> None:
    history = RecentLogEnds(intervals=2, topic_keys={"a": 9, "b": 5})
    history.add(_look(1, a=10, b=1))
    history.add(_look(2, a=11))
    assert history.topic_keys == {"a": 9}
    assert history.to_table().to_pylist() == [
        {"topic": "a", "partition": 0, "at_ms": 1, "offset": 10},
        {"topic": "a", "partition": 0, "at_ms": 2, "offset": 11},
    ]
    history.add(_look(3))
    assert [len(column) for column in history.as_arrays().ends] == [0, 0, 0]
