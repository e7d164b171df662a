"""The job hands each batch to its judges after the tables have it, with the log ends that it polled."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from karrot.clock import SystemClock
from karrot.event import TopicPartition
from karrot.pipeline.offsets.job import JsonTopic, LandOffsets, OffsetsBatch
from karrot.pipeline.offsets.log_ends import LogEndPolls
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.kafka_read_options import KafkaConnection
from karrot.pipeline.stream.record_sources import RecordsFromParquet
from karrot.pipeline.stream.streaming_queries import UnusableState
from karrot.watch.cluster_interface import Failure
from support.kafka.offset_records import commit_key, commit_value
from support.pipeline.kafka_source_rows import LOG_TS_MS, records_table


class _Kafka:
    """A Kafka in which each topic has one partition, which ends at 90."""

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        return dict.fromkeys(topics, 1)

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        return dict.fromkeys(places, 0)

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        return dict.fromkeys(places, 90)


@dataclass
class _Judge:
    """A judge that remembers what it got."""

    tables: Tables
    name: str = "burrow"
    fails: bool = False
    taken: list[tuple[int, int, int, int]] = field(default_factory=list)
    ends: list[tuple[TopicPartition, int]] = field(default_factory=list)

    def last_batch(self) -> int:
        return self.taken[-1][0] if self.taken else -1

    def topics(self) -> Collection[str]:
        return {"stopped"} if self.taken else ()

    def take(self, batch: OffsetsBatch) -> None:
        stored = self.tables.read(batch.records.sparkSession, "commits").count()
        self.taken.append((batch.number, batch.records.count(), stored, batch.newest_ms or 0))
        look = batch.look
        self.ends += [] if look is None else zip(look.places, look.offset.tolist(), strict=True)
        if self.fails:
            raise InterruptedError("no receiver")


class _Topic(JsonTopic):
    """A topic that counts the commits of each publication."""

    def __init__(self) -> None:
        super().__init__(KafkaConnection((), {}), "json")
        self.published = list[int]()

    def publish(self, commits: DataFrame, *, is_read: bool) -> int:  # noqa: ARG002 (no group reads the topic)
        self.published.append(commits.count())
        return self.published[-1]


def _run(spark: SparkSession, place: Path, *judges: _Judge, topic: JsonTopic | None = None) -> LandOffsets:
    tables, polls = Tables(str(place / "tables")), LogEndPolls(_Kafka(), timedelta(hours=1), SystemClock())
    source = RecordsFromParquet(str(place / "records"))
    job = LandOffsets(spark, source, "c", tables, tables.checkpoint("kafka"), topic, polls=polls, judges=judges)
    job.start().awaitTermination()
    return job


def test_judges_get_each_batch_after_the_tables_also_a_batch_without_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "records").mkdir()
    pq.write_table(records_table([(commit_key("g", "t", 0), commit_value(3, 7))], 1), tmp_path / "records/1.parquet")
    tables = Tables(str(tmp_path / "tables"))
    away, well, topic = _Judge(tables, fails=True), _Judge(tables, "stale"), _Topic()
    with pytest.raises(StreamingQueryException, match="no receiver"):
        _run(spark, tmp_path, away, well, topic=topic)
    assert (away.taken, well.taken) == ([(0, 1, 1, LOG_TS_MS)], [])
    away.fails = False
    _run(spark, tmp_path, away, well, topic=topic)
    assert topic.published == [1], "the topic has the batch that a judge has in its state"
    # The first batch is repeated, and the other one has no records.
    assert away.taken[1:] == well.taken == [(0, 1, 1, LOG_TS_MS), (1, 0, 1, 0)]
    assert {*well.ends} == {(TopicPartition(topic, 0), 90) for topic in ("t", "stopped")}
    assert [len(tables.files(spark, name)) for name in ("commits", "members", "ends", "quarantine")] == [1, 0, 2, 0]
    late = _Judge(tables, "stale")
    with pytest.raises(UnusableState, match=r"has 2 batches, and the judge stale has not seen all .*: use another"):
        _run(spark, tmp_path, away, late)
    # A power cut can take the newest batches of Spark's checkpoint. Other records then have their numbers.
    ahead = _Judge(tables, taken=[(9, 0, 0, 0)])
    with pytest.raises(UnusableState, match=r"has 2 batches, and the judge burrow has seen 10: use another"):
        _run(spark, tmp_path, ahead)
