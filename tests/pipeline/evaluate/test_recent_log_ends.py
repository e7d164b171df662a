"""Log ends that Kafka does not give are told, and asked for again."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from karrot.pipeline.evaluate.recent_log_ends import LogEndsFromKafka
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
