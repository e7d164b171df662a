from collections.abc import Collection, Mapping

import pytest
from pyspark.sql import SparkSession

from karrot.event import TopicPartition
from karrot.pipeline.stream.kafka_read_options import KafkaConnection, StartingOffsets
from karrot.pipeline.stream.record_sources import (
    OffsetRange,
    PassedOffsets,
    RecordsFromKafka,
    RecordsFromParquet,
    ranges_of_batch,
)
from karrot.watch.cluster_interface import ClusterError, Failure

_CHECKPOINT = {
    "sources/0/0": '\0v1\n{"topic":{"0":5,"1":0}}',
    "offsets/0": 'v1\n{"batchWatermarkMs":0}\n{"topic":{"0":9,"1":0}}',
    "offsets/1": 'v1\n{"batchWatermarkMs":0}\n{"topic":{"0":20,"1":3,"2":4}}',
}


class NoMetadata:
    """A Kafka that does not answer."""

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        raise ClusterError("unreachable", f"no answer about {topics}")

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        raise ClusterError("unreachable", f"no answer about {places}")

    log_ends = log_starts


def test_a_batch_starts_at_the_end_of_the_one_before_and_the_first_at_the_start_of_the_stream() -> None:
    assert ranges_of_batch(_CHECKPOINT.get, 0, "topic") == {0: OffsetRange(5, 9), 1: OffsetRange(0, 0)}
    assert ranges_of_batch(_CHECKPOINT.get, 1, "topic") == {
        0: OffsetRange(9, 20),
        1: OffsetRange(0, 3),
        2: OffsetRange(4, 4),
    }
    with pytest.raises(FileNotFoundError, match="offsets/2"):
        ranges_of_batch(_CHECKPOINT.get, 2, "topic")


@pytest.mark.parametrize(("most", "is_full"), [(6, True), (7, True), (8, True), (9, True), (10, False)])
def test_a_batch_is_full_if_spark_stopped_at_its_limit(most: int, *, is_full: bool) -> None:
    """The batch passed seven records. Spark rounds the share of each of its two partitions down."""
    checkpoint = {
        "sources/0/0": '\0v1\n{"topic":{"0":5,"1":0}}',
        "offsets/0": 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"topic":{"0":9,"1":3}}\n17',
    }
    kafka = RecordsFromKafka(KafkaConnection(("k:9092",)), NoMetadata(), StartingOffsets("earliest"), "topic", most)
    assert kafka.is_full(checkpoint.get, 0) is is_full
    assert not RecordsFromParquet("/records").is_full(checkpoint.get, 0)


@pytest.mark.parametrize(
    ("passed", "log_start", "first_read", "offsets", "gone"),
    [
        pytest.param(OffsetRange(10, 20), 0, 10, 10, 0, id="every record is read"),
        pytest.param(OffsetRange(10, 20), 10, 14, 10, 0, id="compacted records are not lost"),
        pytest.param(OffsetRange(10, 20), 15, 15, 10, 5, id="the first half was deleted"),
        pytest.param(OffsetRange(10, 20), 15, 12, 10, 2, id="the log start moved on from 12 to 15 during the read"),
        pytest.param(OffsetRange(10, 20), 15, None, 10, 5, id="nothing is read and the first half was deleted"),
        pytest.param(OffsetRange(10, 20), 30, None, 10, 10, id="every record was deleted"),
        pytest.param(OffsetRange(10, 10), 30, None, 0, 0, id="no new record"),
        pytest.param(OffsetRange(50, 8), 0, None, 8, 8, id="a recreated topic, whose records so far are skipped"),
        pytest.param(OffsetRange(50, 8), 3, None, 5, 5, id="a recreated topic whose first records were deleted"),
    ],
)
def test_unread_records_before_the_log_start_count_as_lost(
    passed: OffsetRange, log_start: int, first_read: int | None, offsets: int, gone: int
) -> None:
    assert passed.offsets(log_start) == offsets
    assert passed.lost(log_start, first_read) == gone


class HalfKnown(NoMetadata):
    """A Kafka that knows the log start of one partition."""

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        unknown = Failure("leader_not_available", "no leader")
        return {place: 2 if place.partition == 1 else unknown for place in places}


def test_a_partition_with_an_unknown_log_start_has_no_known_losses(spark: SparkSession) -> None:
    kafka = RecordsFromKafka(KafkaConnection(("k:9092",)), HalfKnown(), StartingOffsets("earliest"), "topic")
    read = spark.range(1).selectExpr("1 AS log_partition", "2 AS log_offset")
    assert kafka.passed(_CHECKPOINT.get, 1, read) == PassedOffsets(offsets=14, lost=2)
