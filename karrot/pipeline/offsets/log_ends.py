"""Writes the table ``ends``: log end offsets from polls of Kafka, or from files of other pollers.

Kafka is asked also while no group commits, because that is when it matters whether a log still grows.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from karrot.clock import Clock
from karrot.event import TopicPartition
from karrot.pipeline.schemas import ENDS, columns_of, with_day
from karrot.pipeline.store.shared_columns import is_possible
from karrot.pipeline.store.tables import Tables
from karrot.pipeline.stream.query_runner import batch_name, checkpoint_id, start_query
from karrot.pipeline.stream.record_sources import TopicMetadata, new_files
from karrot.watch.cluster_interface import ClusterError, Failure

MOST_PARTITIONS: Final = 20_000
"""How many partitions a look asks about: what is beyond is left out, and said."""

_LOOK: Final = StructType([ENDS[name] for name in ("topic", "partition", "start_offset", "end_offset", "observed_at")])
_NEEDED: Final = ("topic", "partition", "end_offset")
_ROWS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("observed_at", pa.timestamp("us", "UTC")),
    ]
)


class LogEndReader(TopicMetadata, Protocol):
    """What is asked of Kafka to read log ends; every method may raise `ClusterError`."""

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """The log end offsets."""


class PollSummary(NamedTuple):
    """What one look gave: how many partitions it wrote and left out; ``trouble`` is why Kafka did not answer."""

    written: int = 0
    left_out: int = 0
    trouble: str = ""

    def plus(self, other: "PollSummary") -> "PollSummary":
        """How many both have written and left out."""
        return PollSummary(self.written + other.written, self.left_out + other.left_out)

    def __str__(self) -> str:
        if self.trouble:
            return f"log ends: Kafka did not say: {self.trouble}"
        told = f"log ends of {self.written:,} partitions"
        return f"{told}, {self.left_out:,} left out" if self.left_out else told


@dataclass(slots=True)
class EndsPoll:
    """Looks at the partitions of the topics that were `seen`, when it is time to, and writes what it finds.

    ``tell`` gets what came of each look. Never raises for Kafka's sake: the next look may be better.
    """

    spark: SparkSession
    tables: Tables
    cluster: str
    kafka: LogEndReader
    clock: Clock
    every: timedelta
    tell: Callable[[PollSummary], object] = lambda _looked: None
    topics: frozenset[str] = frozenset()
    total: PollSummary = PollSummary()  # noqa: RUF009 (cannot change)
    _run: str = field(default_factory=lambda: uuid4().hex[:8])
    _looks: int = 0
    _next_ms: float = 0

    def seen(self, topics: Iterable[str]) -> None:
        """Topics on which somebody commits."""
        self.topics = self.topics.union(topics)

    def look_if_due(self) -> None:
        """Look if the time since the last look is over."""
        now_ms = self.clock.boot_ms()
        if self.topics and now_ms >= self._next_ms:
            self._next_ms = now_ms + self.every.total_seconds() * 1000
            self.look()

    def look(self) -> None:
        """Ask, and write a batch."""
        try:
            looked = self._written()
        except ClusterError as error:
            looked = PollSummary(trouble=str(error))
        self.total = self.total.plus(looked)
        self.tell(looked)

    def _written(self) -> PollSummary:
        at = datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC)
        counts = sorted(self.kafka.partitions(self.topics).items())
        places = [TopicPartition(topic, partition) for topic, count in counts for partition in range(count)]
        asked = places[:MOST_PARTITIONS]
        # The starts first: so no end is below its start.
        starts, log_ends = _known(self.kafka.log_starts(asked)), _known(self.kafka.log_ends(asked))
        found = [(*place, starts.get(place), end, at) for place, end in sorted(log_ends.items())]
        if found:
            frame = self.spark.createDataFrame(_table(found)).coalesce(1)
            self.tables.write_batch(ends(frame, self.cluster), "ends", f"{self._run}-{self._looks:06d}")
            self._looks += 1
        return PollSummary(len(found), len(places) - len(found))


def ends(looks: DataFrame, cluster: str) -> DataFrame:
    """The table ``ends`` and its day, of ``topic, partition, start_offset, end_offset, observed_at``."""
    return looks.withColumns(
        {
            "cluster": F.lit(cluster),
            "observed_at_ms": F.unix_millis("observed_at"),
            "day": F.to_date("observed_at"),
        }
    ).select(*columns_of(with_day(ENDS)))


@dataclass(slots=True)
class LandEnds:
    """The job that takes looks from Parquet files: ``topic, partition, start_offset, end_offset, observed_at``.

    One of them may lack its ``start_offset``; what lacks anything else, or was seen at no possible time, is left out,
    and counted in ``total``.
    """

    spark: SparkSession
    directory: str
    cluster: str
    tables: Tables
    checkpoint: str
    total: PollSummary = PollSummary()  # noqa: RUF009 (cannot change)

    def start(self, every: str | None = None) -> StreamingQuery:
        """Begin, and return at once. Raises `NoRecords`."""
        written_at = F.col("_metadata.file_modification_time").alias("written_at")
        looks = new_files(self.spark, self.directory, _LOOK).select(*_LOOK.fieldNames(), written_at)
        return start_query(looks, self.take, self.checkpoint, every)

    def take(self, looks: DataFrame, batch: int) -> None:
        """Write one batch; called by Spark, again for the same batch after a crash."""
        name = batch_name(checkpoint_id(looks.sparkSession), batch)
        is_there = (F.col(column).isNotNull() for column in _NEEDED)
        is_whole = reduce(Column.__and__, is_there, is_possible("observed_at"))
        self.tables.write_batch(ends(looks.where(is_whole), self.cluster), "ends", name)
        [(count, whole)] = looks.agg(F.count("*"), F.count(F.when(is_whole, 1))).collect()
        self.total = self.total.plus(PollSummary(whole, count - whole))


def topics_of_late(spark: SparkSession, tables: Tables, cluster: str) -> list[str]:
    """The topics with commits on the newest two days that the table has."""
    days = tables.days(spark, "commits")[-2:]
    late = tables.read(spark, "commits", days=days).where(F.col("cluster") == cluster) if days else None
    return [] if late is None else [row.topic for row in late.select("topic").distinct().collect()]


def _known(answers: Mapping[TopicPartition, int | Failure]) -> dict[TopicPartition, int]:
    return {place: answer for place, answer in answers.items() if not isinstance(answer, Failure)}


def _table(found: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = zip(*found, strict=True)
    return pa.table([pa.array(column, each.type) for column, each in zip(columns, _ROWS, strict=True)], schema=_ROWS)
