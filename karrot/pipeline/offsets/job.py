"""Writes ``__consumer_offsets`` into the tables ``commits``, ``members`` and ``quarantine``, and onto a JSON topic.

As in `karrot.pipeline.ingest.job`, a batch writes each table into its own folder ``batch_id=…``. So a batch that is
repeated after a crash overwrites its own files. The JSON topic gets the records of a repeated batch again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import reduce
from typing import Any, Final, Self

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from karrot.pipeline.offsets.commits import KEY_TYPES, bad_records, commits, decode_offsets
from karrot.pipeline.offsets.log_ends import PollSummary
from karrot.pipeline.offsets.members import members, members_of
from karrot.pipeline.schemas import STREAMED
from karrot.pipeline.store.filesystem import listing, literal
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.kafka_connection import KafkaConnection
from karrot.pipeline.stream.query_runner import (
    UnevenError,
    batch_name,
    batch_prefix,
    checkpoint_id,
    checkpoint_reader,
    persisted,
    start_query,
)
from karrot.pipeline.stream.record_sources import RecordSource

MOST_READERS: Final = 1_000
"""The most groups that are remembered as readers of the topic."""

_FIELDS: Final = {
    "topic": "topic",
    "partition": "partition",
    "group": "consumer",
    "version": "version",
    "offset": "offset",
    "metadata": "metadata",
    "commitTimestamp": "commit_ts_ms",
    "expireTimestamp": "expire_ts_ms",
}
"""The fields of a record, as in the Kafka Streams application of 2017, with the columns that they come from."""


def as_json(commits: DataFrame) -> DataFrame:
    """Make the unchanged ``key`` and the JSON ``value`` from readable commits of `decode_offsets`.

    A tombstone has topic, partition and group; its other fields are null. Times are epoch milliseconds.
    """
    fields = F.struct(*(F.col(column).alias(name) for name, column in _FIELDS.items()))
    return commits.select("key", F.to_json(fields, {"ignoreNullFields": "false"}).alias("value"))


@dataclass(slots=True)
class JsonTopic:
    """The topic to which commits are published as JSON, at least once. ``readers`` are the groups that have read it.

    Consumers of the topic commit offsets too. If their commits were published, each record would cause a commit, and
    each commit a record, without end. So commits on the topic itself are not published, nor those of a group that has
    read it since the start: a group that copies the topic to another one would make the same loop in two steps.
    """

    brokers: KafkaConnection
    topic: str
    readers: frozenset[str] = field(default=frozenset())

    def publish(self, commits: DataFrame, *, is_read: bool) -> int:
        """Publish the commits of a batch and return how many. ``is_read``: some are commits on the JSON topic."""
        if is_read:
            on_topic = commits.where(F.col("topic") == self.topic).select("consumer").distinct().limit(MOST_READERS)
            readers = self.readers.union(row.consumer for row in on_topic.collect())
            self.readers = frozenset(sorted(readers)[:MOST_READERS])
        others = commits.where((F.col("topic") != self.topic) & ~F.col("consumer").isin(*self.readers))
        as_json(others).write.format("kafka").options(**self.brokers.options, topic=self.topic).save()
        return others.count()


_COMMIT: Final = (0, 1)
_METADATA: Final = 2
_PLACE: Final = ("log_partition", "log_offset")
"""The columns with the place of a record in ``__consumer_offsets``."""


@dataclass(frozen=True, slots=True)
class OffsetsSummary:
    """Counts the records that a run read and what became of them.

    - ``others``: records whose type has no table, by the name of the type.
    - ``offsets``: offsets of the topic that the run passed; 0 if the records come from files.
    - ``lost``: offsets whose records the broker deleted before the job read them.
    - `absent`: passed offsets without a record.
    - ``published``: records that were sent to the JSON topic.
    - ``looks``: log-end samples that were written; ``bad_looks``: samples that were left out.
    """

    batches: int = 0
    records: int = 0
    commits: int = 0
    tombstones: int = 0
    members: int = 0
    others: Mapping[str, int] = field(default_factory=dict)
    quarantined: int = 0
    duplicates: int = 0
    offsets: int = 0
    lost: int = 0
    published: int = 0
    looks: int = 0
    bad_looks: int = 0

    def __add__(self, other: Self) -> Self:
        mine, its = asdict(self), asdict(other)
        others = _added(mine.pop("others"), its.pop("others"))
        return type(self)(**_added(mine, its), others=others)

    @property
    def is_even(self) -> bool:
        known = self.commits + self.tombstones + self.members + self.quarantined + self.duplicates
        return self.records == known + sum(self.others.values())

    @property
    def absent(self) -> int:
        """Passed offsets whose record was compacted away, is of an aborted transaction, or is a transaction marker."""
        return max(0, self.offsets - self.lost - self.records)

    def __str__(self) -> str:
        names = ", ".join(f"{name} {count:,}" for name, count in sorted(self.others.items()))
        others = f"{sum(self.others.values()):,} others" + (f" ({names})" if names else "")
        text = (
            f"{self.records:,} records = {self.commits:,} commits + {self.tombstones:,} tombstones + {self.members:,}"
            f" of members + {others} + {self.quarantined:,} quarantined + {self.duplicates:,} duplicates"
        )
        if self.offsets:
            text += f"; of {self.offsets:,} offsets {self.lost:,} lost, {self.absent:,} without a record"
        if self.published:
            text += f"; {self.published:,} published"
        return f"{text}; {PollSummary(self.looks, self.bad_looks)}" if self.looks or self.bad_looks else text

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "absent": self.absent}


@dataclass(slots=True)
class LandOffsets:
    """The job: writes the records of ``__consumer_offsets`` batch by batch.

    After each batch, the job passes the batch's summary to ``tell``, and the topics of its commits to ``seen``. Two
    jobs for one cluster must not write into the same tables at the same time: neither would see the other's records.
    """

    spark: SparkSession
    source: RecordSource
    cluster: str
    tables: Tables
    checkpoint: str
    json_topic: JsonTopic | None = None
    tell: Callable[[OffsetsSummary], object] = lambda _summary: None
    seen: Callable[[Iterable[str]], object] = lambda _topics: None
    total: OffsetsSummary = field(default_factory=OffsetsSummary)

    def start(self, every: str | None = None) -> StreamingQuery:
        """Start the query and return. The query reads the existing records and, with ``every``, also later records.

        Raises `NoRecords`, `ConnectorMissing` and `PropertiesError`.
        """
        return start_query(self.source.records(self.spark), self.take, self.checkpoint, every)

    def take(self, records: DataFrame, batch: int) -> None:
        checkpoint = checkpoint_id(records.sparkSession)
        with persisted(_lean(decode_offsets(records, self.cluster))) as decoded:
            passed = self.source.passed(checkpoint_reader(self.spark, self.checkpoint), batch, decoded)
            landing = _Batch.of(self, decoded, checkpoint, batch)
            summary = landing.write()
            if not summary.is_even:
                raise UnevenError(f"batch {landing.batch_id}: {summary}")
        if passed is not None:
            summary += OffsetsSummary(offsets=passed.offsets, lost=passed.lost)
        self.seen(landing.topics)
        self.total += summary
        self.tell(summary)


@dataclass(frozen=True, slots=True)
class _Batch:
    """One batch: the number of its records, the decoded records that are new, and their `_counted` rows."""

    job: LandOffsets
    batch_id: str
    records: int
    new: DataFrame
    counted: list[Row]

    @classmethod
    def of(cls, job: LandOffsets, decoded: DataFrame, checkpoint: str, batch: int) -> Self:
        """Make the batch without repeated records, and without records that the tables already have."""
        batch_id = batch_name(checkpoint, batch)
        counted = _counted(decoded)
        days = {row.day for row in counted}

        def counts(name: str) -> bool:
            # A checkpoint of Spark's Kafka source passes each record once, so only batches of other checkpoints count.
            return name != batch_id if job.source.may_repeat else not name.startswith(batch_prefix(checkpoint))

        known = _landed(job, days, counts)
        new = _once(decoded) if job.source.may_repeat else decoded
        if known is not None:
            # A join may change the order. The JSON topic needs the order of the log.
            left = new.join(known, on=list(_PLACE), how="left_anti").repartition("log_partition")
            new = left.sortWithinPartitions(*_PLACE)
        return cls(job, batch_id, _sum(counted), new, counted if new is decoded else _counted(new))

    @property
    def topics(self) -> list[str]:
        return sorted({row.topic for row in self.counted if row.topic is not None})

    def write(self) -> OffsetsSummary:
        """Write every table, and then the topic, so that the tables have each commit before it is published."""
        tombstones = sum(row["count"] for row in self.counted if row.tombstone)
        good = self.new.where(F.col("readable") & F.col("key_type").isin(*_COMMIT))
        written = self._write("commits", commits(good))
        metadata = _sum(row for row in self.counted if row.readable and row.key_type == _METADATA)
        bad_metadata, quarantined = self._write_members(has_any=metadata > 0)
        topic, published = self.job.json_topic, 0
        if topic is not None and self.topics:
            published = topic.publish(good, is_read=topic.topic in self.topics)
        return OffsetsSummary(
            batches=1,
            records=self.records,
            commits=written - tombstones,
            tombstones=tombstones,
            members=metadata - bad_metadata,
            others=self._others(),
            quarantined=quarantined,
            duplicates=self.records - _sum(self.counted),
            published=published,
        )

    def _write(self, name: str, rows: DataFrame) -> int:
        """Write a table's rows of the batch. Return the number of rows in the written files, from their footers."""
        self.job.tables.write_batch(rows, name, self.batch_id)
        days = {row.day for row in self.counted}
        return self.job.tables.rows_of_batch(self.job.spark, name, self.batch_id, days)

    def _write_members(self, *, has_any: bool) -> tuple[int, int]:
        """Write ``members`` and ``quarantine``. Return the numbers of bad metadata records and of all bad records."""
        bad = bad_records(self.new)
        if not has_any:
            return 0, self._write_quarantine(bad, 0)
        with persisted(members_of(self.new, self.job.cluster)) as decoded:
            self._write("members", members(decoded))
            bad_metadata = decoded.where(~F.col("readable")).count()
            return bad_metadata, self._write_quarantine(bad.unionByName(bad_records(decoded)), bad_metadata)

    def _write_quarantine(self, bad: DataFrame, bad_metadata: int) -> int:
        is_clean = not bad_metadata and all(row.readable for row in self.counted)
        return 0 if is_clean else self._write("quarantine", bad)

    def _others(self) -> dict[str, int]:
        others: dict[str, int] = {}
        for row in self.counted:
            if row.readable and row.key_type not in {*_COMMIT, _METADATA}:
                name = KEY_TYPES.get(row.key_type, "unknown")
                others[name] = others.get(name, 0) + row["count"]
        return others


def _lean(decoded: DataFrame) -> DataFrame:
    """Drop the values of readable commits, which are not needed any more, and use one partition per core.

    The topic has 50 partitions, and each partition would make a file.
    """
    was_read = F.col("readable") & F.col("key_type").isin(*_COMMIT)
    cores = decoded.sparkSession.sparkContext.defaultParallelism
    return decoded.withColumn("value", F.when(~was_read, F.col("value"))).coalesce(cores)


def _once(decoded: DataFrame) -> DataFrame:
    """Keep one record per place (partition and offset). All records without a place are kept."""
    has_place = F.col(_PLACE[0]).isNotNull() & F.col(_PLACE[1]).isNotNull()
    own = F.when(~has_place, F.monotonically_increasing_id())
    return decoded.withColumn("_own", own).dropDuplicates([*_PLACE, "_own"]).drop("_own")


def _counted(decoded: DataFrame) -> list[Row]:
    sorts = decoded.groupBy("key_type", "readable", "tombstone", "topic", F.to_date("log_ts").alias("day"))
    return sorts.count().collect()


def _sum(counted: Iterable[Row]) -> int:
    return sum(row["count"] for row in counted)


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _landed(job: LandOffsets, days: Collection[date], counts: Callable[[str], bool]) -> DataFrame | None:
    """The places of the cluster's records that are in the tables on these days; ``None`` if there are none.

    ``counts`` decides by the name of a batch whether the batch's records count.
    """
    of_cluster = F.col("cluster") == job.cluster
    source, before = F.col("source"), f"{job.cluster}/__consumer_offsets-"
    places = {
        "commits": (of_cluster, F.col("log_partition"), F.col("log_offset")),
        "members": (of_cluster, F.col("log_partition"), F.col("log_offset")),
        "quarantine": (
            F.startswith(source, F.lit(before)),
            F.substr(source, F.lit(len(before) + 1)).try_cast("int"),
            F.col("position"),
        ),
    }
    found: list[DataFrame] = []
    for name, (is_of, partition, offset) in places.items():
        # One call lists all directories of a day.
        paths = [
            job.tables.path(name, f"day={day}", entry)
            for day in sorted(days)
            for entry in listing(job.spark, job.tables.path(name, f"day={day}"))
            if entry.startswith("batch_id=") and counts(entry.removeprefix("batch_id="))
        ]
        if paths:
            rows = job.spark.read.schema(STREAMED[name]).parquet(*map(literal, paths)).where(is_of)
            found.append(rows.select(partition.alias("log_partition"), offset.alias("log_offset")))
    return reduce(DataFrame.unionByName, found).distinct() if found else None
