"""Judges every consumer group by Burrow's rules, from the batches of `karrot.pipeline.offsets.job`.

Spark sends the commits of a group to the group's bucket. A bucket holds the rings and the incidents of all its groups.
A batch writes the new state and the notifications into the `StateFolder`, then ``state.json``. After that, the driver
delivers the notifications. If the driver dies before it has written ``state.json``, Spark repeats the batch with the
same incident ids. If the driver dies later, it delivers the notifications again.

While a receiver is away, its verdicts wait in the state, and the batches go on. Of several waiting verdicts with the
same status and incident of a group, the first and the newest of all are kept.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from itertools import chain
from operator import and_
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

from karrot.burrow.notification_rules import NameFilter
from karrot.burrow.payload import to_wire
from karrot.clock import Clock, SystemClock
from karrot.event import LagEvent
from karrot.event_json_line import encode
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.pipeline.evaluate.bucket_state import STATE_VERSION, EvaluateRules
from karrot.pipeline.evaluate.bucket_verdicts import COMMIT, DELETION, MEMBER, OUT, BucketTask, StateSize
from karrot.pipeline.evaluate.recent_log_ends import RecentLogEnds
from karrot.pipeline.evaluate.verdict_destinations import Deliver, NotAccepted, RefusedVerdict
from karrot.pipeline.ingest.events import read_lines
from karrot.pipeline.ingest.job import LineBatch
from karrot.pipeline.offsets.job import OffsetsBatch
from karrot.pipeline.offsets.kept_log_ends import LOG_ENDS
from karrot.pipeline.store.hadoop_filesystem import delete, listing, literal, write_text
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import StateFolder, StateNote, UnevenError, UnusableState, persisted

_PART_BYTES: Final = 64 * 1024 * 1024
_LINE: Final = pa.schema(
    {"value": pa.string(), "path": pa.string(), "offset": pa.int64(), "written_at": pa.timestamp("us", "UTC")}
)
"""The columns of the lines that a `karrot.pipeline.ingest.event_sources.EventSource` returns."""


def to_tables(spark: SparkSession, tables: Tables, clock: Clock) -> Deliver:
    """Return a function that appends each verdict to the tables ``events`` and ``partitions``, as ingest does.

    The caller must hold the lease of these tables. If a batch is sent again, its rows are not written twice. The
    function writes chunks of at most `_PART_BYTES`, or of one larger line, and raises `UnevenError`.
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
        part, size = list[tuple[StoredEvent, str]](), 0
        for each in several:
            line = encode(each).decode().removesuffix("\n")
            if part and size + len(line) > _PART_BYTES:
                write(part)
                part, size = [], 0
            part.append((each, line))
            size += len(line)
        if part:
            write(part)
        return ()

    return deliver


BUCKETS: Final = 32
_CONSUMER: Final = "consumer"
_KEPT_BATCHES: Final = 100

MOST_WAITING: Final = 1_000_000
"""The most verdicts that wait for a receiver. If more verdicts wait, the batch fails, and is repeated."""

_WAITING: Final = "seq bigint, consumer string, change string, event string"
"""The columns of the waiting verdicts, which are files of the state, too."""


class BurrowNote(StateNote):
    """The content of ``state.json``.

    Until the notifications of the batch were sent (``is_delivered``), ``next_seq`` is the number of the first one, and
    after that the number of the next batch's first one. ``first_missing`` is the number of the first notification that
    a receiver lacks, by its name; ``waiting`` are the notifications that a receiver lacks. A ring has ``intervals``
    slots. ``topics`` maps the names of topics with commits to the names' hashes. ``size`` is the size of the state.
    """

    id: str = ""
    intervals: int = 0
    now_ms: int = 0
    is_delivered: bool = True
    next_seq: int = 1
    first_missing: dict[str, int] = msgspec.field(default_factory=dict)
    waiting: int = 0
    topics: dict[str, int] = msgspec.field(default_factory=dict)
    size: StateSize = StateSize()

    def first_seq(self) -> int:
        """Return the number of the batch's first notification."""
        return self.next_seq - (self.size.notifications if self.is_delivered else 0)


class JudgedBatch(NamedTuple):
    """The summary of a batch whose verdicts were sent. ``seconds`` is the duration of judging and delivery.

    ``groups`` and ``partitions`` are the numbers of groups and partitions with a commit. ``delivered`` and ``refused``
    are verdicts, one for each receiver. A batch judges no group if more records wait. ``waiting`` verdicts lack at a
    receiver for the reason in ``problem``, and ``superseded`` ones were dropped because of newer ones.
    """

    now_ms: int
    groups: int
    partitions: int
    delivered: int
    seconds: float
    is_judged: bool = True
    refused: Sequence[RefusedVerdict] = ()
    waiting: int = 0
    superseded: int = 0
    problem: str = ""


@dataclass(slots=True)
class BurrowJudge:
    """Judges every consumer group by Burrow's rules. Each of the ``receivers``, by name, gets the notifications.

    ``<place>/refused`` keeps the refused verdicts of the newest batches. The judge calls ``seen`` with each batch.
    """

    spark: SparkSession
    cluster: str
    tables: Tables
    place: str
    asked: EvaluateRules
    receivers: Mapping[str, Deliver]
    buckets: int = BUCKETS
    seen: Callable[[JudgedBatch], object] = lambda _batch: None
    clock: Clock = field(default_factory=SystemClock)
    name: str = field(default="burrow", init=False)
    _folder: StateFolder[BurrowNote] = field(init=False)
    _log_ends: RecentLogEnds | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        intervals = self.asked.rules.intervals
        first = BurrowNote(STATE_VERSION, cluster=self.cluster, id=uuid.uuid4().hex, intervals=intervals)
        self._folder = StateFolder(self.spark, self.tables, self.place, first)

    def note(self) -> BurrowNote:
        """Return the content of ``state.json``. Raises `UnusableState`."""
        note = self._folder.note()
        if note.intervals != self.asked.rules.intervals:
            raise UnusableState(
                f"the rings in {self.place} have {note.intervals} intervals, and --rules asks for "
                f"{self.asked.rules.intervals}: use the same intervals, or another --checkpoint"
            )
        return note

    def last_batch(self) -> int:
        return self.note().batch

    def topics(self) -> Collection[str]:
        return self.note().topics

    def take(self, batch: OffsetsBatch) -> None:
        note, began_ms = self.note(), self.clock.boot_ms()
        before = note.waiting
        if batch.number > note.batch:
            note = self._advance(batch, note)
        if note.is_delivered:
            return
        end, superseded = note.next_seq + note.size.notifications, before - note.waiting
        first_missing, delivered = dict[str, int](), 0
        refused, failed = list[RefusedVerdict](), list[NotAccepted]()
        for name, deliver in self.receivers.items():
            first, first_missing[name] = note.first_missing.get(name, note.next_seq), end
            try:
                refused += deliver(self._notifications(note, first))  # also has those before an error
            except NotAccepted as error:
                first_missing[name] = error.seq
                failed.append(error)
            delivered += self._count(note, first) - self._count(note, first_missing[name])
        if refused:
            self._keep_refused(note.batch, refused)
        waiting = self._count(note, min(first_missing.values(), default=end))
        note = msgspec.structs.replace(note, first_missing=first_missing, waiting=waiting)
        if waiting <= MOST_WAITING:
            note = msgspec.structs.replace(note, is_delivered=True, next_seq=end)
        self._folder.remember(note)
        seconds, problem = (self.clock.boot_ms() - began_ms) / 1000, "; ".join(map(str, failed))
        counts = (note.size.groups, note.size.partitions, delivered - len(refused), seconds, batch.is_last, refused)
        self.seen(JudgedBatch(note.now_ms, *counts, waiting, superseded, problem))
        if not note.is_delivered or not all(each.is_away for each in failed):
            raise NotAccepted(problem, min(first_missing.values()))

    def _advance(self, batch: OffsetsBatch, note: BurrowNote) -> BurrowNote:
        # The time never decreases from batch to batch, unless the clock was ahead in an earlier batch.
        now_ms = max(batch.now_ms, min(note.now_ms, self.clock.wall_ms()))
        log_ends = self._known_log_ends()
        log_ends.topic_keys = {**note.topics, **batch.topics}
        if batch.look is not None:
            log_ends.add(batch.look, now_ms)
        rows = _rows(batch, self.buckets).where(_is_chosen(self.asked.groups))
        state = self._folder.read(OUT, "kind=state").select("bucket", "state")
        task = BucketTask(self.asked, self.cluster, now_ms, f"{note.id}-{batch.number}", judges=batch.is_last)
        shared = self.spark.sparkContext.broadcast(log_ends.as_arrays())
        out = state.groupBy("bucket").cogroup(rows.groupBy("bucket")).applyInArrow(task.of(shared), OUT)
        kind = F.when(F.col("state").isNotNull(), "state").otherwise("notification").alias("kind")
        seen, path = Observation(), self._folder.of_batch(batch.number)
        sizes = F.count("groups"), F.sum("groups"), F.sum("partitions"), F.count("event")
        named = (F.coalesce(each, F.lit(0)).alias(name) for each, name in zip(sizes, StateSize._fields, strict=True))
        counted = out.observe(seen, *named).select("*", kind)
        counted.write.mode("overwrite").partitionBy("kind").parquet(path, compression="zstd")
        shared.destroy()  # also deletes its file, which `unpersist` keeps
        waiting = self._keep_waiting(note, batch.number) if note.waiting else 0
        log_ends.forget_old()
        self._folder.write(self.spark.createDataFrame(log_ends.to_table()), batch.number, "kind=log_ends")
        changed = {"now_ms": now_ms, "is_delivered": False, "topics": log_ends.topic_keys, "waiting": waiting}
        size = StateSize(**seen.get)
        return self._folder.remember(msgspec.structs.replace(note, batch=batch.number, size=size, **changed))

    def _known_log_ends(self) -> RecentLogEnds:
        if self._log_ends is None:
            self._log_ends = RecentLogEnds(self.asked.rules.intervals).load(
                self._folder.read(LOG_ENDS, "kind=log_ends").toArrow()
            )
        return self._log_ends

    def _keep_refused(self, batch: int, refused: Sequence[RefusedVerdict]) -> None:
        lines = "".join(f"{msgspec.json.encode(each).decode()}\n" for each in refused)
        write_text(self.spark, self._folder.within("refused", f"batch={batch:012d}.jsonl"), lines)
        for name in listing(self.spark, self._folder.within("refused"))[:-_KEPT_BATCHES]:
            delete(self.spark, self._folder.within("refused", name))

    def _notifications(self, note: BurrowNote, first: int) -> Iterator[StoredEvent]:
        """Yield the notifications from the number ``first`` on: those that waited, then those of the batch by group."""
        waited = self._waited(first).select("seq", "event").orderBy("seq").toLocalIterator()
        of_batch = self._folder.read(OUT, "kind=notification").select("consumer", "event")
        # One task needs no sample of the groups and no shuffle. Its sort uses the disk if the rows are many.
        in_order = of_batch.coalesce(1).sortWithinPartitions("consumer")
        new = (row.event for row in in_order.toLocalIterator())
        for seq, text in chain(waited, enumerate(new, note.first_seq())):
            if seq >= first:
                event = msgspec.json.decode(text, type=LagEvent)
                at_ms = event.observed_at_ms
                yield StoredEvent(note.id, seq, at_ms, summarize(event, at_ms), to_wire(event), event)

    def _count(self, note: BurrowNote, first: int) -> int:
        """Return the number of notifications from the number ``first`` on."""
        waited = self._waited(first).count() if first < note.first_seq() else 0
        return waited + note.size.notifications - max(0, first - note.first_seq())

    def _waited(self, first: int) -> DataFrame:
        return self._folder.read(_WAITING, "kind=waiting").where(F.col("seq") >= first)

    def _keep_waiting(self, note: BurrowNote, batch: int) -> int:
        """Write the notifications that a receiver lacks into the state of the next batch, and return their number.

        A notification without a change of its group's status or incident is left out if a newer one of the group waits.
        """
        first, all_rows = min(note.first_missing.values()), Window.partitionBy(F.lit(0)).orderBy("consumer")
        seq = F.row_number().over(all_rows) + F.lit(note.first_seq() - 1)
        of_batch = self._folder.read(OUT, "kind=notification").withColumn("seq", seq.cast("bigint"))
        rows = self._waited(first).unionByName(of_batch.select("seq", "consumer", "change", "event"))
        of_group = Window.partitionBy("consumer").orderBy("seq")
        is_change = ~F.col("change").eqNullSafe(F.lag("change").over(of_group))
        is_newest = F.lead("seq").over(of_group).isNull()
        chosen = rows.where(F.col("seq") >= first).withColumn("is_kept", is_change | is_newest).where("is_kept")
        self._folder.write(chosen.drop("is_kept"), batch, "kind=waiting")
        return self.spark.read.parquet(literal(self._folder.of_batch(batch, "kind=waiting"))).count()


def _rows(batch: OffsetsBatch, buckets: int) -> DataFrame:
    """Make rows for `new_records` from the commits and members of a batch."""
    is_commit = F.col("readable") & F.col("key_type").isin(0, 1) & F.col("offset").isNotNull()
    of_all = (
        F.xxhash64("consumer").alias("group_key"),
        F.col("partition").cast("bigint").alias("partition"),
        F.col("log_offset").alias("order"),
        F.col("log_ts_ms").alias("at_ms"),
        F.col("consumer").alias("group"),
        "topic",
    )
    rows = batch.records.where(is_commit).select(
        F.lit(COMMIT).alias("kind"),
        *of_all,
        F.xxhash64("topic").alias("topic_key"),
        "offset",
        F.col("commit_ts_ms").alias("timestamp_ms"),
        F.lit(None).cast("string").alias("owner"),
        F.lit(None).cast("string").alias("client_id"),
    )
    if batch.members is not None:
        # Like Burrow, leave out groups that are not consumer groups, such as the workers of Kafka Connect.
        is_of_consumers = F.col("version").isNull() | (F.col("protocol_type") == _CONSUMER)
        assigned = batch.members.where(F.col("readable") & is_of_consumers).select(
            F.when(F.col("version").isNull(), DELETION).otherwise(MEMBER).alias("kind"),
            *of_all,
            F.col("client_host").alias("owner"),
            "client_id",
        )
        rows = rows.unionByName(assigned, allowMissingColumns=True)
    return rows.withColumn("bucket", F.pmod("group_key", F.lit(buckets)).cast("int"))


def _is_chosen(groups: NameFilter) -> Column:
    """Whether the filter chooses a row's group. Common patterns mean the same in Java, Burrow and Python."""
    name = F.col("group")
    return reduce(and_, [*map(name.rlike, groups.allow), *(~name.rlike(each) for each in groups.deny)], F.lit(True))
