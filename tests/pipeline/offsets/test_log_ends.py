"""`EndsPoll` reads the log ends of any number of partitions. tests/e2e/test_offsets.py has the tests with a broker."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from karrot.event import TopicPartition
from karrot.pipeline.offsets.log_ends import EndsPoll, PollSummary
from karrot.pipeline.store.table_files import Tables
from karrot.watch.cluster_interface import ClusterError, Failure
from support.manual_clock import ManualClock


@dataclass
class FiveLogs:
    """A topic with five partitions. One of them has no leader. Kafka answers some requests, and then no more."""

    answers: int = 99
    asked: list[int] = field(default_factory=list)

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        return dict.fromkeys(topics, 5)

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        return dict.fromkeys(places, 7)

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        self.asked.append(len(places))
        if len(self.asked) > self.answers:
            raise ClusterError("timed_out", "no broker answered within 10 s")
        no_leader = Failure("leader_not_available", "no leader")
        return {place: no_leader if place.partition == 3 else 100 + place.partition for place in places}


def poll_of(kafka: FiveLogs, clock: ManualClock, spark: SparkSession, tables: Tables) -> tuple[EndsPoll, list[str]]:
    told: list[str] = []
    poll = EndsPoll(
        spark, tables, "prod", kafka, clock, timedelta(seconds=30), lambda summary: told.append(str(summary)), at_once=2
    )
    poll.seen(["t"])
    return poll, told


def test_a_poll_of_many_partitions_takes_several_requests_and_leaves_out_no_partition(
    spark: SparkSession, tmp_path: Path
) -> None:
    kafka, clock, tables = FiveLogs(), ManualClock(), Tables(str(tmp_path))
    poll, told = poll_of(kafka, clock, spark, tables)
    poll.look_if_due()
    assert (kafka.asked, told) == ([2, 2, 1], ["4 log ends, 1 left out"])
    poll.look_if_due()
    assert kafka.asked == [2, 2, 1]
    rows = tables.read(spark, "ends").orderBy("partition").collect()
    assert [(row.partition, row.start_offset, row.end_offset) for row in rows] == [
        (0, 7, 100),
        (1, 7, 101),
        (2, 7, 102),
        (4, 7, 104),
    ]


def test_a_stopped_poll_sends_no_further_request(spark: SparkSession, tmp_path: Path) -> None:
    kafka = FiveLogs()
    poll, told = poll_of(kafka, ManualClock(), spark, Tables(str(tmp_path)))
    poll.stop.set()
    poll.look()
    assert (kafka.asked, told) == ([], ["0 log ends"])


def test_a_poll_that_kafka_stops_answering_keeps_the_samples_that_it_has(spark: SparkSession, tmp_path: Path) -> None:
    kafka, tables = FiveLogs(answers=1), Tables(str(tmp_path))
    poll, told = poll_of(kafka, ManualClock(), spark, tables)
    poll.look()
    assert told == ["log ends: Kafka did not answer after 2 partitions: no broker answered within 10 s"]
    assert poll.total == PollSummary(written=2, left_out=3)
    assert tables.read(spark, "ends").count() == 2
