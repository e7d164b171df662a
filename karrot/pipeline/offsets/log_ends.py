"""Writes the table ``ends``: log end offsets from polls of Kafka, or from files of other programs.

The job also polls while no group commits, because the lag depends on whether a log still grows.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from threading import Event
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from karrot.clock import Clock
from karrot.event import TopicPartition
from karrot.pipeline.schemas_and_conversions import ENDS, columns_of, is_possible, with_day
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.record_sources import TopicMetadata, new_files
from karrot.pipeline.stream.streaming_queries import batch_name, checkpoint_id, start_query
from karrot.text import counted
from karrot.watch.cluster_interface import ClusterError, Failure

_AT_ONCE: Final = 20_000
"""The most partitions of one request. A poll of more partitions takes several requests, and writes a batch for each."""

_SAMPLE: Final = StructType(
    [ENDS[name] for name in ("topic", "partition", "start_offset", "end_offset", "observed_at")]
)
_NEEDED: Final = ("topic", "partition", "end_offset")
_TYPES: Final = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.timestamp("us", "UTC"))
_ROWS: Final = pa.schema(zip(_SAMPLE.fieldNames(), _TYPES, strict=True))


class LogEndReader(TopicMetadata, Protocol):
    """The requests to Kafka that read log ends. Every method can raise `ClusterError`."""

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """Read the log end offsets of partitions."""


class PollSummary(NamedTuple):
    """Counts the partitions that one poll wrote and left out. ``problem`` says why Kafka did not answer."""

    written: int = 0
    left_out: int = 0
    problem: str = ""

    def plus(self, other: "PollSummary") -> "PollSummary":
        return PollSummary(self.written + other.written, self.left_out + other.left_out)

    def __str__(self) -> str:
        if self.problem:
            some = f" after {counted(self.written, 'partition')}" if self.written else ""
            return f"log ends: Kafka did not answer{some}: {self.problem}"
        text = counted(self.written, "log end")
        return f"{text}, {self.left_out:,} left out" if self.left_out else text


@dataclass(slots=True)
class EndsPoll:
    """Polls the topics that were `seen`, at an interval, and writes the log ends of their partitions.

    ``tell`` gets the summary of each poll. If Kafka fails, a poll raises no error, because the next poll may succeed.
    One request asks for at most ``at_once`` partitions, so the driver's memory does not grow with the cluster. After
    ``stop`` is set, a poll sends no further request.
    """

    spark: SparkSession
    tables: Tables
    cluster: str
    kafka: LogEndReader
    clock: Clock
    every: timedelta
    tell: Callable[[PollSummary], object] = lambda _summary: None
    topics: frozenset[str] = frozenset()
    total: PollSummary = PollSummary()  # noqa: RUF009 (cannot change)
    at_once: int = _AT_ONCE
    stop: Event = field(default_factory=Event)
    _run: str = field(default_factory=lambda: uuid4().hex[:8])
    _batches: int = 0
    _next_ms: float = 0

    def seen(self, topics: Iterable[str]) -> None:
        self.topics = self.topics.union(topics)

    def look_if_due(self) -> None:
        """Poll if the interval since the beginning of the last poll is over."""
        now_ms = self.clock.boot_ms()
        if self.topics and now_ms >= self._next_ms:
            self._next_ms = now_ms + self.every.total_seconds() * 1000
            self.look()

    def look(self) -> None:
        """Poll once. Each request asks for some partitions, and its samples are written as a batch."""
        rest: list[TopicPartition] = []
        written, left_out, problem = 0, 0, ""
        if not self.topics:
            return
        try:
            counts = sorted(self.kafka.partitions(self.topics).items())
            rest = [TopicPartition(topic, partition) for topic, count in counts for partition in range(count)]
            while rest and not self.stop.is_set():
                asked = rest[: self.at_once]
                answered = self._written(asked)
                written, left_out = written + answered, left_out + len(asked) - answered
                rest = rest[self.at_once :]
        except ClusterError as error:
            left_out, problem = left_out + len(rest), str(error)
        summary = PollSummary(written, left_out, problem)
        self.total = self.total.plus(summary)
        self.tell(summary)

    def _written(self, asked: Sequence[TopicPartition]) -> int:
        at = datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC)
        # Read the log starts first, so that no log end is below its log start.
        starts, log_ends = _known(self.kafka.log_starts(asked)), _known(self.kafka.log_ends(asked))
        rows = ((*place, starts.get(place), end, at) for place, end in sorted(log_ends.items()))
        found = [dict(zip(_ROWS.names, row, strict=True)) for row in rows]
        if found:
            frame = self.spark.createDataFrame(pa.Table.from_pylist(found, schema=_ROWS)).coalesce(1)
            batch_id, job = f"{self._run}-{self._batches:06d}", f"{self._run}-"
            self.tables.append(ends(frame, self.cluster), "ends", batch_id, job=job)
            self._batches += 1
        return len(found)


def ends(samples: DataFrame, cluster: str) -> DataFrame:
    """Make the table ``ends``, with its day, from ``topic, partition, start_offset, end_offset, observed_at``."""
    return samples.withColumns(
        {"cluster": F.lit(cluster), "observed_at_ms": F.unix_millis("observed_at"), "day": F.to_date("observed_at")}
    ).select(*columns_of(with_day(ENDS)))


@dataclass(slots=True)
class LandEnds:
    """The job that reads log-end samples from Parquet files.

    The files have the columns ``topic, partition, start_offset, end_offset, observed_at``. ``start_offset`` can be
    NULL. A sample with NULL in another column, or with an impossible time, is left out and counted in ``total``.
    """

    spark: SparkSession
    directory: str
    cluster: str
    tables: Tables
    checkpoint: str
    total: PollSummary = PollSummary()  # noqa: RUF009 (cannot change)

    def start(self, every: timedelta | None = None) -> StreamingQuery:
        """Start the query and return. Raises `NoRecords`."""
        written_at = F.col("_metadata.file_modification_time").alias("written_at")
        samples = new_files(self.spark, self.directory, _SAMPLE).select(*_SAMPLE.fieldNames(), written_at)
        return start_query(samples, self.take, self.checkpoint, every)

    def take(self, samples: DataFrame, batch: int) -> None:
        name = batch_name(checkpoint_id(samples.sparkSession), batch)
        is_there = (F.col(column).isNotNull() for column in _NEEDED)
        is_whole = reduce(Column.__and__, is_there, is_possible("observed_at"))
        self.tables.append(ends(samples.where(is_whole), self.cluster), "ends", name)
        [(count, whole)] = samples.agg(F.count("*"), F.count(F.when(is_whole, 1))).collect()
        self.total = self.total.plus(PollSummary(whole, count - whole))


def topics_of_late(spark: SparkSession, tables: Tables, cluster: str) -> list[str]:
    """Return the topics with commits on the newest two days, and with members on the newest 30 days."""
    found = set[str | None]()
    for name, newest in {"commits": 2, "members": 30}.items():
        if days := tables.days(spark, name)[-newest:]:
            late = tables.read(spark, name, days=days).where(F.col("cluster") == cluster)
            found.update(row.topic for row in late.select("topic").distinct().collect())
    return [topic for topic in found if topic is not None]


def _known(answers: Mapping[TopicPartition, int | Failure]) -> dict[TopicPartition, int]:
    return {place: answer for place, answer in answers.items() if not isinstance(answer, Failure)}
