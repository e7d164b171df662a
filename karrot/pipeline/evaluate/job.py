"""Runs ``karrot pipeline evaluate``: judges every consumer group from the stream of ``__consumer_offsets``.

A batch has the new records. Spark sends the commits of a group to the group's bucket. A bucket holds the rings and the
incidents of all its groups. A batch writes the new state and the notifications into the `StateFolder`, then
``state.json``. After that, the driver delivers the notifications. If the driver dies before it has written
``state.json``, Spark repeats the batch with the same incident ids. If the driver dies later, it delivers the
notifications again.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from karrot.burrow.notification_rules import NameFilter
from karrot.burrow.payload import to_wire
from karrot.clock import Clock, SystemClock
from karrot.event import LagEvent
from karrot.event_json_line import encode
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.pipeline.evaluate.bucket_state import EvaluateRules
from karrot.pipeline.evaluate.bucket_verdicts import COMMIT, DELETION, MEMBER, OUT, BucketTask, StateSize
from karrot.pipeline.evaluate.recent_log_ends import LogEndSource, RecentLogEnds
from karrot.pipeline.evaluate.verdict_destinations import Deliver, RefusedVerdict
from karrot.pipeline.ingest.events import read_lines
from karrot.pipeline.ingest.job import LineBatch
from karrot.pipeline.offsets.commits import bad_records, decode_offsets
from karrot.pipeline.offsets.members import members_of
from karrot.pipeline.schemas_and_conversions import PARTITION, RECORD_COLUMNS
from karrot.pipeline.store.hadoop_filesystem import delete, flush_files, listing, literal, write_text
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.record_sources import RecordSource
from karrot.pipeline.stream.streaming_queries import (
    CheckpointReader,
    StateFolder,
    StateNote,
    UnevenError,
    UnusableState,
    batch_name,
    checkpoint_reader,
    persisted,
    start_query,
)

_PART_BYTES: Final = 64 * 1024 * 1024
_LINE: Final = pa.schema(
    {"value": pa.string(), "path": pa.string(), "offset": pa.int64(), "written_at": pa.timestamp("us", "UTC")}
)
"""The columns of the lines that a `karrot.pipeline.ingest.event_sources.EventSource` returns."""


def to_tables(spark: SparkSession, tables: Tables, clock: Clock) -> Deliver:
    """Return a function that appends each verdict to the tables ``events`` and ``partitions``, as ingest does.

    The caller must hold the lease of these tables. If a batch is sent again, its rows are not written twice. The
    function writes chunks that fit into memory, and raises `UnevenError`.
    """

    def write(part: Sequence[tuple[StoredEvent, str]]) -> None:
        first, _ = part[0]
        written_at = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
        path = f"{first.event.cluster}/evaluate"
        rows = [{"value": line, "path": path, "offset": each.seq, "written_at": written_at} for each, line in part]
        batch_id = f"{first.log_id:.8}-{first.seq:012d}"
        with persisted(read_lines(spark.createDataFrame(pa.Table.from_pylist(rows, _LINE)))) as lines:
            summary = LineBatch(spark, tables, batch_id, lines, []).write()
        if not summary.is_even:
            raise UnevenError(f"batch {batch_id}: {summary}")

    def deliver(several: Iterable[StoredEvent]) -> Sequence[RefusedVerdict]:
        for part in _parts(several):
            write(part)
        return ()

    return deliver


def _parts(several: Iterable[StoredEvent]) -> Iterator[list[tuple[StoredEvent, str]]]:
    """Encode verdicts as lines. Yield chunks of at most `_PART_BYTES`, or of one larger line."""
    part, size = list[tuple[StoredEvent, str]](), 0
    for each in several:
        line = encode(each).decode().removesuffix("\n")
        if part and size + len(line) > _PART_BYTES:
            yield part
            part, size = [], 0
        part.append((each, line))
        size += len(line)
    if part:
        yield part


BUCKETS: Final = 32
_VERSION: Final = 3
_GROUP_METADATA: Final = 2
_CONSUMER: Final = "consumer"
MOST_RECORDS: Final = 10_000_000
"""The maximum number of records in a batch from Kafka: 160,000 commits per second for a minute."""

_KEPT_BATCHES: Final = 100
_NEEDED: Final = (*PARTITION, "offset", "commit_ts_ms", *RECORD_COLUMNS, "key_type", "readable", "reason")
"""The columns of decoded records that a batch keeps, besides the raw key and value of some records."""


class EvaluateNote(StateNote):
    """The content of ``state.json``.

    The ``id`` of the checkpoint makes the ids of incidents and events unique. ``now_ms`` is the time of the batch.
    ``next_seq`` is the sequence number of the first notification that is not delivered. A ring has ``intervals`` slots.
    ``topics`` maps the names of topics with commits to the names' hashes. ``size`` is the size of the state.
    """

    id: str = ""
    intervals: int = 0
    now_ms: int = 0
    is_delivered: bool = True
    next_seq: int = 1
    topics: dict[str, int] = msgspec.field(default_factory=dict)
    size: StateSize = StateSize()


class EvaluatedBatch(NamedTuple):
    """The summary of a batch whose verdicts were delivered. ``seconds`` is the duration of the batch.

    ``groups`` and ``partitions`` are the numbers of groups and partitions with a commit. ``delivered`` and ``refused``
    are verdicts, one for each receiver. ``unreadable`` counts records. A batch judges no group if more records wait.
    """

    now_ms: int
    groups: int
    partitions: int
    delivered: int
    seconds: float
    unreadable: int = 0
    is_judged: bool = True
    refused: Sequence[RefusedVerdict] = ()


@dataclass(slots=True)
class Evaluate:
    """The job. Each of the ``receivers`` gets the notifications. Unreadable records go to the table ``quarantine``.

    ``<checkpoint>/refused`` keeps the refused verdicts of the newest batches. The job calls ``seen`` with each batch.
    ``now_ms`` returns the time of a batch from its number. Two jobs must not share a checkpoint.
    """

    spark: SparkSession
    source: RecordSource
    log_ends: LogEndSource
    cluster: str
    tables: Tables
    checkpoint: str
    asked: EvaluateRules
    receivers: Sequence[Deliver]
    now_ms: Callable[[int], int]
    buckets: int = BUCKETS
    seen: Callable[[EvaluatedBatch], object] = lambda _batch: None
    clock: Clock = field(default_factory=SystemClock)
    _folder: StateFolder[EvaluateNote] = field(init=False)
    _is_checked: bool = field(default=False, init=False)
    _history: RecentLogEnds | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._folder = StateFolder(self.spark, self.checkpoint, EvaluateNote(_VERSION))

    def start(self, every: timedelta | None = None) -> StreamingQuery:
        """Start the query and return. The query judges all groups at the interval ``every``, with or without records.

        Without ``every``, the query ends after the existing records. Raises `UnusableState` and `NoRecords`.
        """
        self.note()
        records = self.source.records(self.spark)
        # Spark continues a checkpoint only with the same number of sources, so ``tick`` is always added.
        tick = self.spark.readStream.format("rate").option("rowsPerSecond", 1).load()
        nothing = (F.lit(None).cast(each.dataType).alias(each.name) for each in records.schema)
        records = records.unionByName(tick.select(*nothing))
        return start_query(records, self.take, self.checkpoint, every)

    def take(self, records: DataFrame, batch: int) -> None:
        note, began_ms, unreadable = self.note(), self.clock.boot_ms(), 0
        is_judged = not self.source.is_full(checkpoint_reader(self.spark, self.checkpoint), batch)
        if batch > note.batch:
            # In the rows of the source ``tick``, all columns are NULL.
            is_record = F.greatest(*(F.col(name).isNotNull() for name in ("key", "value", "offset")))
            with persisted(_needed(decode_offsets(records.where(is_record), self.cluster))) as read:
                members = members_of(read, self.cluster)
                rows = _rows(read, members, self.buckets).where(_is_chosen(self.asked.groups))
                # The time never decreases from batch to batch, unless the clock was ahead in an earlier batch.
                now_ms = max(self.now_ms(batch), min(note.now_ms, self.clock.wall_ms()))
                # Poll the log ends before the records are read, so that they are as old as the newest commit.
                self._look(note.topics, note, now_ms)
                found = _Found.of(read, rows, self.asked.groups)
                unreadable = self._keep_unreadable(read, members, found, batch_name(note.id, batch))
                if not found.topics.keys() <= note.topics.keys():
                    self._look(note.topics | found.topics, note, now_ms)
                note = self._advance(rows, batch, note, now_ms, is_judged=is_judged)
        if not note.is_delivered:
            refused = [each for deliver in self.receivers for each in deliver(self._notifications(note))]
            if refused:
                self._keep_refused(note.batch, refused)
            size, next_seq = note.size, note.next_seq + note.size.notifications
            self._remember(msgspec.structs.replace(note, is_delivered=True, next_seq=next_seq))
            seconds, delivered = (self.clock.boot_ms() - began_ms) / 1000, size.notifications * len(self.receivers)
            counts = (size.groups, size.partitions, delivered - len(refused))
            self.seen(EvaluatedBatch(note.now_ms, *counts, seconds, unreadable, is_judged, refused))

    def note(self) -> EvaluateNote:
        """Return the content of ``state.json``, which the first call reads and checks. Raises `UnusableState`."""
        note = self._folder.note()
        if not note.id:
            new_id, intervals = uuid.uuid4().hex, self.asked.rules.intervals
            note = self._remember(msgspec.structs.replace(note, id=new_id, intervals=intervals))
        elif not self._is_checked:
            self._check(note)
        self._is_checked = True
        return note

    def _check(self, note: EvaluateNote) -> None:
        if note.intervals != self.asked.rules.intervals:
            raise UnusableState(
                f"the rings in {self.checkpoint} have {note.intervals} intervals, and --rules asks for "
                f"{self.asked.rules.intervals}: use the same intervals, or another --checkpoint"
            )
        if (found := self._size(note.batch)) != note.size:
            raise UnusableState(
                f"the state in {self.checkpoint} is damaged, for example by a power cut: its numbers "
                f"of buckets, groups, partitions and notifications are {[*found]}, not {[*note.size]}: use another one"
            )

    def _advance(
        self, rows: DataFrame, batch: int, note: EvaluateNote, now_ms: int, *, is_judged: bool
    ) -> EvaluateNote:
        history = self._log_ends_of(note)
        state = self._read(note.batch).select("bucket", "state")
        task = BucketTask(self.asked, self.cluster, now_ms, f"{note.id}-{batch}", judges=is_judged)
        shared = self.spark.sparkContext.broadcast(history.as_arrays())
        out = state.groupBy("bucket").cogroup(rows.groupBy("bucket")).applyInArrow(task.of(shared), OUT)
        path = self._folder.of_batch(batch)
        kind = F.when(F.col("state").isNotNull(), "state").otherwise("notification").alias("kind")
        out.select("*", kind).write.mode("overwrite").partitionBy("kind").parquet(path, compression="zstd")
        history.forget_old()
        self.spark.createDataFrame(history.to_table()).write.mode("append").parquet(f"{path}/kind=log_ends")
        flush_files(self.spark, path)
        shared.unpersist()
        made = msgspec.structs.replace(note, batch=batch, now_ms=now_ms, is_delivered=False, topics=history.topic_keys)
        return self._remember(msgspec.structs.replace(made, size=self._size(batch)))

    def _look(self, topics: dict[str, int], note: EvaluateNote, now_ms: int) -> None:
        history = self._log_ends_of(note)
        history.topic_keys = {**topics}
        look = self.log_ends.look(topics, (note.now_ms, now_ms))
        if look is not None:
            history.add(look)

    def _log_ends_of(self, note: EvaluateNote) -> RecentLogEnds:
        if self._history is None:
            self._history = self._read_history(note.batch)
        return self._history

    def _remember(self, note: EvaluateNote) -> EvaluateNote:
        self.tables.require()
        self._folder.remember(note)
        return note

    def _keep_unreadable(self, read: DataFrame, members: DataFrame, found: "_Found", batch_id: str) -> int:
        """Write the unreadable records to the table ``quarantine``, and return their number."""
        bad = [bad_records(read)] if found.has_unreadable else []
        if found.has_metadata:
            bad.append(bad_records(members))
        if not bad:
            return 0
        with persisted(reduce(DataFrame.unionByName, bad)) as unread:
            counts = {row.day: row["count"] for row in unread.groupBy("day").count().collect()}
            if not counts:
                return 0
            files = (file for file in self.tables.files(self.spark, "quarantine") if file.day in counts)
            others = [file for file in files if file.batch_id != batch_id]
            known = self.tables.read_files(self.spark, "quarantine", others).select("source", "position").distinct()
            new = unread.join(known, on=["source", "position"], how="left_anti").select(unread.columns)
            self.tables.append(new, "quarantine", batch_id)
        return sum(counts.values())

    def _keep_refused(self, batch: int, refused: Sequence[RefusedVerdict]) -> None:
        lines = "".join(f"{msgspec.json.encode(each).decode()}\n" for each in refused)
        write_text(self.spark, self._folder.place("refused", f"batch={batch:012d}.jsonl"), lines)
        for name in listing(self.spark, self._folder.place("refused"))[:-_KEPT_BATCHES]:
            delete(self.spark, self._folder.place("refused", name))

    def _size(self, batch: int) -> StateSize:
        path = self._folder.of_batch(batch)
        if not listing(self.spark, path):
            return StateSize()
        counts = F.count("groups"), F.sum("groups"), F.sum("partitions"), F.count("event")
        row = self.spark.read.schema(OUT).parquet(literal(path)).agg(*counts).first()
        return StateSize(*(count or 0 for count in row or ()))

    def _read(self, batch: int) -> DataFrame:
        """Read the state after a batch. The result has no rows before the first group."""
        path = self._folder.of_batch(batch, "kind=state")
        if not listing(self.spark, path):
            return self.spark.createDataFrame([], OUT)
        return self.spark.read.schema(OUT).parquet(literal(path))

    def _notifications(self, note: EvaluateNote) -> Iterator[StoredEvent]:
        """Yield the notifications of the batch in ``state.json``, sorted by group."""
        path = self._folder.of_batch(note.batch, "kind=notification")
        if not listing(self.spark, path):
            return
        rows = self.spark.read.schema(OUT).parquet(literal(path)).select("consumer", "event")
        for seq, row in enumerate(rows.orderBy("consumer").toLocalIterator(), note.next_seq):
            event = msgspec.json.decode(row.event, type=LagEvent)
            yield StoredEvent(note.id, seq, note.now_ms, summarize(event, note.now_ms), to_wire(event), event)

    def _read_history(self, batch: int) -> RecentLogEnds:
        intervals = self.asked.rules.intervals
        if batch < 0:
            return RecentLogEnds(intervals)
        rows = self.spark.read.parquet(literal(self._folder.of_batch(batch, "kind=log_ends")))
        return RecentLogEnds.from_table(rows.toArrow(), intervals)


class _Found(NamedTuple):
    """The topics of a batch's commits and members, and whether it has unreadable records and group metadata.

    ``topics`` maps the name of a topic to the hash of the name.
    """

    topics: dict[str, int]
    has_unreadable: bool
    has_metadata: bool

    @classmethod
    def of(cls, read: DataFrame, new: DataFrame, groups: NameFilter) -> "_Found":
        is_metadata = F.coalesce(F.col("key_type") == _GROUP_METADATA, F.lit(False))
        topic = F.when(F.col("readable") & ~is_metadata & _is_chosen(groups, "consumer"), F.col("topic"))
        kinds = read.select("readable", is_metadata.alias("is_metadata"), topic.alias("topic")).distinct()
        rows = kinds.withColumn("topic_key", F.xxhash64("topic")).collect()
        topics = {row.topic: row.topic_key for row in rows if row.topic is not None}
        has_metadata = any(row.readable and row.is_metadata for row in rows)
        if has_metadata:  # a member can own partitions of a topic on which no group commits
            owned = new.where((F.col("kind") == MEMBER) & F.col("topic").isNotNull()).select("topic").distinct()
            topics |= {
                row.topic: row.topic_key
                for row in owned.select("topic", F.xxhash64("topic").alias("topic_key")).collect()
            }
        return cls(topics, any(not row.readable for row in rows), has_metadata)


def _needed(decoded: DataFrame) -> DataFrame:
    """Select commits except tombstones, group metadata, and unreadable records."""
    is_commit = F.col("key_type").isin(0, 1) & ~F.col("tombstone") & F.col("offset").isNotNull()
    is_metadata = F.col("key_type") == _GROUP_METADATA
    read = decoded.where(~F.col("readable") | is_commit | is_metadata)
    raw = (F.when(~F.col("readable") | is_metadata, F.col(name)).alias(name) for name in ("key", "value"))
    return read.select(*_NEEDED, *raw)


def _rows(read: DataFrame, members: DataFrame, buckets: int) -> DataFrame:
    """Make rows for `new_records` from the commits in ``read`` and the decoded ``members``."""
    commits = read.where(F.col("readable") & (F.col("key_type") != _GROUP_METADATA)).select(
        F.lit(COMMIT).alias("kind"),
        F.xxhash64("consumer").alias("group_key"),
        F.xxhash64("topic").alias("topic_key"),
        F.col("partition").cast("bigint").alias("partition"),
        F.col("log_offset").alias("order"),
        "offset",
        F.col("commit_ts_ms").alias("timestamp_ms"),
        F.col("log_ts_ms").alias("at_ms"),
        F.col("consumer").alias("group"),
        "topic",
    )
    # Like Burrow, leave out groups that are not consumer groups, such as the workers of Kafka Connect.
    is_of_consumers = F.col("version").isNull() | (F.col("protocol_type") == _CONSUMER)
    assigned = members.where(F.col("readable") & is_of_consumers).select(
        F.when(F.col("version").isNull(), DELETION).otherwise(MEMBER).alias("kind"),
        F.xxhash64("consumer").alias("group_key"),
        F.col("partition").cast("bigint").alias("partition"),
        F.col("log_offset").alias("order"),
        F.col("log_ts_ms").alias("at_ms"),
        F.col("consumer").alias("group"),
        "topic",
        F.col("client_host").alias("owner"),
        "client_id",
    )
    rows = commits.unionByName(assigned, allowMissingColumns=True)
    return rows.withColumn("bucket", F.pmod("group_key", F.lit(buckets)).cast("int"))


def _is_chosen(groups: NameFilter, column: str = "group") -> Column:
    """Whether the filter chooses a row's group. Common patterns mean the same in Java, Burrow and Python."""
    name = F.col(column)
    return reduce(and_, [*map(name.rlike, groups.allow), *(~name.rlike(each) for each in groups.deny)], F.lit(True))


def batch_time_ms(read: CheckpointReader, batch: int) -> int:
    """Return the time at which Spark chose the batch's last offset. A repeated batch has the same time."""
    text = read(f"offsets/{batch}")
    if text is None:
        raise FileNotFoundError(f"the checkpoint has no offsets/{batch}")
    return int(json.loads(text.splitlines()[1])["batchTimestampMs"])
