"""Writes ``__consumer_offsets`` and log ends to tables and commits to a JSON topic, and hands both to the judges.

As in `karrot.pipeline.ingest.job`, a batch that is repeated after a crash replaces its own rows. The JSON topic gets
the records of a repeated batch again. The judges get a batch after the tables have it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, timedelta
from functools import reduce
from typing import Any, Final, NamedTuple, Protocol, Self

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from karrot.pipeline.offsets.commits import KEY_TYPES, bad_records, commits, decode_offsets
from karrot.pipeline.offsets.log_ends import LogEndLook, LogEndPolls, PollSummary, append_ends
from karrot.pipeline.offsets.members import members, members_of
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.kafka_read_options import KafkaConnection
from karrot.pipeline.stream.record_sources import RecordSource
from karrot.pipeline.stream.streaming_queries import (
    UnevenError,
    UnusableState,
    batch_name,
    batch_prefix,
    batch_time_ms,
    checkpoint_id,
    checkpoint_reader,
    last_batch,
    persisted,
    start_query,
)

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
    """Keep ``key``, and make the JSON ``value``, of the readable commits of `decode_offsets`.

    A tombstone has topic, partition and group; its other fields are null. Times are epoch milliseconds.
    """
    fields = F.struct(*(F.col(column).alias(name) for name, column in _FIELDS.items()))
    return commits.select("key", F.to_json(fields, {"ignoreNullFields": "false"}).alias("value"))


@dataclass(slots=True)
class JsonTopic:
    """The topic to which commits are published as JSON, at least once. ``readers`` are the groups that have read it.

    Consumers of the topic commit offsets too. If their commits were published, each record would cause a commit, and
    each commit a record, in a loop. So commits on the topic itself are not published, nor those of a group that has
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


_ROWS_OF_A_FILE: Final = 500_000
_COMMIT: Final = (0, 1)
_METADATA: Final = 2
_TICK: Final = "is_tick"
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
    others: Counter[str] = field(default_factory=Counter)
    quarantined: int = 0
    duplicates: int = 0
    offsets: int = 0
    lost: int = 0
    published: int = 0
    looks: int = 0
    bad_looks: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def is_even(self) -> bool:
        known = self.commits + self.tombstones + self.members + self.quarantined + self.duplicates
        return self.records == known + self.others.total()

    @property
    def absent(self) -> int:
        """Passed offsets whose record was compacted away, is of an aborted transaction, or is a transaction marker."""
        return max(0, self.offsets - self.lost - self.records)

    def __str__(self) -> str:
        names = ", ".join(f"{name} {count:,}" for name, count in sorted(self.others.items()))
        others = f"{self.others.total():,} others" + (f" ({names})" if names else "")
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
        return {**{each.name: getattr(self, each.name) for each in fields(self)}, "absent": self.absent}


class OffsetsBatch(NamedTuple):
    """What the judges get: the decoded ``records`` of a batch, and the log ends since the last batch.

    ``topics`` maps the names of topics with commits or members to the names' hashes. ``members`` has the rows of
    `members_of`, or is ``None`` without metadata of a group. ``newest_ms`` is the time of the newest record of a
    commit. If not ``is_last``, more records wait, so the newest commits are not known yet.
    """

    number: int
    now_ms: int
    records: DataFrame
    topics: Mapping[str, int]
    members: DataFrame | None = None
    look: LogEndLook | None = None
    newest_ms: int | None = None
    is_last: bool = True


class Judge(Protocol):
    """Judges the groups in each batch, and sends what it finds. It keeps its own state in the checkpoint."""

    name: str

    def last_batch(self) -> int:
        """Return the number of the last batch in its state; -1 without one. Raises `UnusableState`."""

    def topics(self) -> Collection[str]:
        """Return the topics in its state, whose log ends it needs although no group has committed lately."""

    def take(self, batch: OffsetsBatch) -> None:
        """Judge a batch. If its state has the batch already, only send what was not sent before."""


@dataclass(slots=True)
class LandOffsets:
    """The job: writes the records of ``__consumer_offsets`` batch by batch.

    After each batch, the job passes the batch's summary to ``tell``. Two jobs for one cluster must not write into the
    same tables at the same time: neither would see the other's records.
    """

    spark: SparkSession
    source: RecordSource
    cluster: str
    tables: Tables
    checkpoint: str
    json_topic: JsonTopic | None = None
    tell: Callable[[OffsetsSummary], object] = lambda _summary: None
    polls: LogEndPolls | None = None
    judges: Sequence[Judge] = ()
    total: OffsetsSummary = field(default_factory=OffsetsSummary)

    def start(self, every: timedelta | None = None) -> StreamingQuery:
        """Start the query and return. Without ``every``, the query ends after the existing records.

        With ``every``, a batch comes at this interval, with or without records. Raises `NoRecords`,
        `ConnectorMissing`, `PropertiesError` and `UnusableState`.
        """
        ended = last_batch(self.spark, self.checkpoint)
        for judge in self.judges:
            if (seen := judge.last_batch()) not in (ended, ended + 1):  # the last batch may not have ended
                problem = "has not seen all of them" if seen < ended else f"has seen {seen + 1}"
                raise UnusableState(
                    f"{self.checkpoint} has {ended + 1} batches, and the judge {judge.name} {problem}: "
                    "use another --checkpoint, which reads the topic again"
                )
        if self.polls is not None:
            self.polls.add({topic for judge in self.judges for topic in judge.topics()})
        records = self.source.records(self.spark)
        # Spark continues a checkpoint only with the same sources, so there is always a source of ticks.
        ticks = self.spark.readStream.format("rate-micro-batch").options(rowsPerBatch=1, numPartitions=1).load()
        nothing = (F.lit(None).cast(each.dataType).alias(each.name) for each in records.schema)
        both = records.withColumn(_TICK, F.lit(False)).unionByName(ticks.select(*nothing, F.lit(True).alias(_TICK)))
        return start_query(both, self.take, self.checkpoint, every)

    def take(self, records: DataFrame, batch: int) -> None:
        read = checkpoint_reader(self.spark, self.checkpoint)
        batch_id = batch_name(checkpoint_id(records.sparkSession), batch)
        if self.polls is not None:
            self.polls.if_due()  # before the records are read, so that the log ends are as old as the newest commit
        new = decode_offsets(records.where(~F.col(_TICK)).drop(_TICK), self.cluster)
        with persisted(_lean(new)) as decoded:
            passed = self.source.passed(read, batch, decoded)
            counted = _counted(decoded)
            topics = {row.topic: row.topic_key for row in counted if row.topic is not None}
            once = _once(decoded) if self.source.may_repeat else decoded
            with persisted(members_of(once, self.cluster)) as of_members:
                if _metadata(counted):  # a member can own partitions of a topic on which no group commits
                    owned = of_members.where("readable AND topic IS NOT NULL").select("topic").distinct()
                    topics |= dict(owned.select("topic", F.xxhash64("topic")).collect())
                # A judge would lose the commits on a topic without log ends, and a group may never commit again.
                look = None if self.polls is None else self.polls.taken(topics, needs_all=bool(self.judges))
                # The topic has a batch that a judge has: while a judge fails, each start repeats the batch.
                topic = None if any(judge.last_batch() >= batch for judge in self.judges) else self.json_topic
                summary = self._write(decoded, once, of_members, counted, batch_id, json_topic=topic)
                if look is not None:
                    written = append_ends(self.spark, self.tables, self.cluster, look)
                    summary += OffsetsSummary(looks=written, bad_looks=look.left_out)
                if passed is not None:
                    summary += OffsetsSummary(offsets=passed.offsets, lost=passed.lost)
                newest_ms = max((row.newest_ms for row in counted if row.topic is not None), default=None)
                members, is_last = of_members if _metadata(counted) else None, not self.source.is_full(read, batch)
                now_ms = batch_time_ms(read, batch)
                for judge in self.judges:
                    judge.take(OffsetsBatch(batch, now_ms, once, topics, members, look, newest_ms, is_last))
        self.total += summary
        self.tell(summary)

    def _write(
        self,
        decoded: DataFrame,
        once: DataFrame,
        of_members: DataFrame,
        counted: list[Row],
        batch_id: str,
        *,
        json_topic: JsonTopic | None,
    ) -> OffsetsSummary:
        """Write a batch without repeated records, and without records that the tables already have.

        The JSON topic comes last, so that the tables have each commit before it is published.
        """
        records = _sum(counted)
        known = self._known({row.day for row in counted}, batch_id)
        new = once
        if known is not None:
            of_members = of_members.join(known, on=list(_PLACE), how="left_anti").select(of_members.columns)
            # A join may change the order. The JSON topic needs the order of the log.
            left = once.join(known, on=list(_PLACE), how="left_anti").repartition("log_partition")
            new = left.sortWithinPartitions(*_PLACE)
        counted = counted if new is decoded else _counted(new)

        def append(name: str, rows: DataFrame) -> int:
            of_files = rows.coalesce(1 + records // _ROWS_OF_A_FILE)
            return self.tables.append(of_files, name, batch_id, job=batch_prefix(batch_id))

        commit_rows = [row for row in counted if row.readable and row.key_type in _COMMIT]
        good = new.where(F.col("readable") & F.col("key_type").isin(*_COMMIT))
        written = append("commits", commits(good)) if commit_rows else 0
        tombstones = _sum(row for row in counted if row.tombstone)
        metadata = _metadata(counted)
        quarantined, bad_metadata = 0, 0
        if metadata:
            append("members", members(of_members))
            bad_metadata = of_members.where(~F.col("readable")).count()
        if bad_metadata or not all(row.readable for row in counted):
            quarantined = append("quarantine", bad_records(new).unionByName(bad_records(of_members)))
        others = Counter[str]()
        for row in counted:
            if row.readable and row.key_type not in {*_COMMIT, _METADATA}:
                others[KEY_TYPES.get(row.key_type, "unknown")] += row["count"]
        topics, published = {row.topic for row in commit_rows}, 0
        if json_topic is not None and topics:
            published = json_topic.publish(good, is_read=json_topic.topic in topics)
        summary = OffsetsSummary(
            batches=1,
            records=records,
            commits=written - tombstones,
            tombstones=tombstones,
            members=metadata - bad_metadata,
            others=others,
            quarantined=quarantined,
            duplicates=records - _sum(counted),
            published=published,
        )
        if not summary.is_even:
            raise UnevenError(f"batch {batch_id}: {summary}")
        return summary

    def _known(self, days: Collection[date], batch_id: str) -> DataFrame | None:
        """Return the places of the cluster's stored records on these days, or ``None`` if no records are stored.

        A checkpoint of Spark's Kafka source passes each record once, so only batches of other checkpoints count then.
        """
        own = batch_id if self.source.may_repeat else batch_prefix(batch_id)
        of_cluster, place = F.col("cluster") == self.cluster, tuple(map(F.col, _PLACE))
        source, before = F.col("source"), f"{self.cluster}/__consumer_offsets-"
        partition = F.substr(source, F.lit(len(before) + 1)).try_cast("int")
        quarantined = (F.startswith(source, F.lit(before)), partition, F.col("position"))
        places = {"commits": (of_cluster, *place), "members": (of_cluster, *place), "quarantine": quarantined}
        found: list[DataFrame] = []
        for name, (is_of, in_partition, offset) in places.items():
            files = [file for file in self.tables.files(self.spark, name) if file.day in days]
            if others := [file for file in files if not file.batch_id.startswith(own)]:
                rows = self.tables.read_files(self.spark, name, others).where(is_of)
                found.append(rows.select(in_partition.alias(_PLACE[0]), offset.alias(_PLACE[1])))
        return reduce(DataFrame.unionByName, found).distinct() if found else None


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
    counted = sorts.agg(F.count("*").alias("count"), F.max("log_ts_ms").alias("newest_ms"))
    return counted.withColumn("topic_key", F.xxhash64("topic")).collect()


def _sum(counted: Iterable[Row]) -> int:
    return sum(row["count"] for row in counted)


def _metadata(counted: Iterable[Row]) -> int:
    return _sum(row for row in counted if row.readable and row.key_type == _METADATA)
