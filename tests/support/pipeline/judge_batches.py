"""Batches of records of ``__consumer_offsets`` for the judges, without a stream."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.event import LogEnd, TopicPartition
from karrot.pipeline.offsets.commits import decode_offsets
from karrot.pipeline.offsets.job import OffsetsBatch
from karrot.pipeline.offsets.log_ends import LogEndLook
from karrot.pipeline.offsets.members import members_of
from support.pipeline.log_end_looks import look_of


def batch_of(
    records: DataFrame, number: int, now_ms: int, look: LogEndLook | None, *, is_last: bool = True
) -> OffsetsBatch:
    """The batch of the cluster ``c`` with these records."""
    decoded = decode_offsets(records, "c")
    topics = decoded.where("topic IS NOT NULL").groupBy("topic").agg(F.max("log_ts_ms").alias("newest_ms"))
    rows = topics.withColumn("key", F.xxhash64("topic")).collect()
    return OffsetsBatch(
        number,
        now_ms,
        decoded,
        {row.topic: row.key for row in rows},
        members_of(decoded, "c"),
        look,
        max((row.newest_ms for row in rows), default=None),
        is_last,
    )


class CommitRecord(NamedTuple):
    """A decoded commit; without an offset, a tombstone."""

    group: str
    topic: str
    partition: int
    offset: int | None
    at_ms: int
    log_offset: int


def decoded_batch(
    spark: SparkSession,
    place: Path,
    number: int,
    commits: Sequence[CommitRecord],
    ends: Sequence[tuple[TopicPartition, LogEnd]],
) -> OffsetsBatch:
    """A batch with these decoded commits and log ends. The file with the commits saves a Python worker."""
    names = ("consumer", "topic", "partition", "offset", "log_ts_ms", "log_offset")
    rows = [dict(zip(names, each, strict=True)) | {"tombstone": each.offset is None} for each in commits]
    path = place / "commits.json"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    schema = "consumer string, topic string, partition int, offset bigint, log_ts_ms bigint, log_offset bigint"
    records = spark.read.schema(f"{schema}, tombstone boolean").json(str(path)).repartition(2)
    newest_ms = max((each.at_ms for each in commits), default=None)
    look = look_of(ends, {each.topic for each, _ in ends})
    return OffsetsBatch(number, 1 << 50, records, {}, look=look, newest_ms=newest_ms)
