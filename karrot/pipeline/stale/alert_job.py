"""Runs ``karrot pipeline stale``: follows the tables ``commits`` and ``ends``, and alerts on stale partitions.

Spark's file source finds the new files, and Spark judges all partitions. The state of the partitions is in tables in
the checkpoint (`PartitionState`). The driver writes the state of a batch, with all lines to deliver, before it delivers
the first line. So a restart loses no line. A line is repeated only if the driver dies after it delivers the line and
before it records the delivery.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final, TextIO
from urllib.parse import urlsplit

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from karrot.clock import Clock, SystemClock
from karrot.history.offsets_at_time import lag_at
from karrot.http_client import ACCEPTED, HttpClient, RequestFailed
from karrot.pipeline.schemas_and_conversions import PARTITION, STREAMED, with_day
from karrot.pipeline.stale.stale_partition_rule import (
    SAMPLES,
    STANDINGS,
    ClusterTimes,
    judged,
    merged_samples,
    merged_standings,
    newest_commits,
    newest_samples,
    newest_times,
)
from karrot.pipeline.store.hadoop_filesystem import flush_files, literal, make_directory
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import ANY_AGE, StateFolder, StateNote, persisted, start_query
from karrot.text import iso_ms


def lines_of(row: Row) -> Iterator[str]:
    """Yield the lines of a row of `STANDINGS`: first the alert that the batch cleared, then the alert it opened."""
    if row.cleared_offset is not None:
        yield _line("cleared", row, row.cleared_offset, row.cleared_since_ms)
    if row.fired:
        yield _line("stale", row, row.offset, row.since_ms)


def _line(state: str, row: Row, offset: int, since_ms: int) -> str:
    """Make one line. The lines "stale" and "cleared" of an alert have the same ``id``."""
    key = {"cluster": row.cluster, "group": row.consumer, "topic": row.topic, "partition": row.partition}
    named = msgspec.json.encode(([*key.values()], (offset, since_ms)))
    facts: dict[str, Any] = {
        "state": state,
        "id": hashlib.sha256(named).hexdigest()[:16],
        **key,
        "current_offset": row.offset,
        "log_end_offset": row.end_offset,
        "lag": None if row.offset is None else lag_at(row.end_offset, row.looked_at_ms, row.offset, row.at_ms),
        "since": iso_ms(since_ms),
        "committed_at": iso_ms(row.at_ms),
        "looked_at": iso_ms(row.looked_at_ms),
    }
    return msgspec.json.encode(facts).decode()


_VERSION: Final = 2


class StaleNote(StateNote):
    """The content of ``state.json``: the `ClusterTimes`, and the lines that are not delivered yet (``unsent``)."""

    sampled_ms: dict[str, int] = msgspec.field(default_factory=dict)
    held_until_ms: dict[str, int] = msgspec.field(default_factory=dict)
    unsent: list[str] = msgspec.field(default_factory=list)


class PartitionState:
    """The state of the job in its `StateFolder`: two tables with a row per partition, and ``state.json``.

    A timestamp in the future is changed to the present, so that it does not stay the newest timestamp.
    """

    def __init__(self, spark: SparkSession, checkpoint: str, clock: Clock | None = None) -> None:
        self.spark, self.clock = spark, clock or SystemClock()
        self.folder = StateFolder(spark, checkpoint, StaleNote(_VERSION))
        self.note, self.remember = self.folder.note, self.folder.remember

    def advance(self, batch: int, records: DataFrame, length: timedelta) -> ClusterTimes:
        """Judge the records of a batch, and write the batch's tables. The caller then has to call `remember`."""
        records = records.withColumn("at_ms", self._not_ahead(F.col("at_ms")))
        times = self._times().after(*newest_times(records), length)
        self._write(merged_samples(self.samples(), newest_samples(records, length), length), batch, "samples")
        standings = merged_standings(self.standings(), newest_commits(records))
        self._write(judged(standings, self._read(batch, "samples", SAMPLES), times, length), batch, "standings")
        return times

    def lines(self, batch: int, most: int) -> tuple[list[str], int]:
        """Return the last ``most`` lines of a batch, sorted by partition, and the number of all its lines."""
        changed = self._read(batch, "standings", STANDINGS).where(F.col("looked_at_ms").isNotNull())
        is_cleared = F.col("cleared_offset").isNotNull()
        row = changed.agg(F.count_if(is_cleared).alias("cleared"), F.count_if("fired").alias("fired")).first()
        total = row.cleared + row.fired if row else 0
        if not total:
            return [], 0
        last = changed.orderBy(*(F.desc(name) for name in PARTITION)).limit(most).collect()
        lines = [line for row in reversed(last) for line in lines_of(row)]
        return lines[max(0, len(lines) - most) :], total

    def standings(self) -> DataFrame:
        known = self._read(self.note().batch, "standings", STANDINGS).where(F.col("at_ms") >= self._times().oldest_ms())
        return known.withColumns(
            {name: self._not_ahead(F.col(name)) for name in ("at_ms", "since_ms", "alert_since_ms")}
        )

    def samples(self) -> DataFrame:
        known = self._read(self.note().batch, "samples", SAMPLES)
        each = F.transform("samples", lambda one: one.withField("at_ms", self._not_ahead(one["at_ms"])))
        is_kept = F.element_at("samples", -1)["at_ms"] >= self._times().oldest_ms()
        return known.where(is_kept).withColumn("samples", each)

    def _times(self) -> ClusterTimes:
        note, now_ms = self.note(), self.clock.wall_ms()
        return ClusterTimes({each: min(at_ms, now_ms) for each, at_ms in note.sampled_ms.items()}, note.held_until_ms)

    def _not_ahead(self, at_ms: Column) -> Column:
        now_ms = self.clock.wall_ms()
        return F.when(at_ms > now_ms, now_ms).otherwise(at_ms)

    def _read(self, batch: int, name: str, schema: StructType) -> DataFrame:
        if batch < 0:
            columns = (F.lit(None).cast(each.dataType).alias(each.name) for each in schema.fields)
            return self.spark.range(0).select(*columns)
        return self.spark.read.schema(schema).parquet(literal(self.folder.of_batch(batch, name)))

    def _write(self, rows: DataFrame, batch: int, name: str) -> None:
        path = self.folder.of_batch(batch, name)
        rows.write.mode("overwrite").parquet(path, compression="zstd")
        flush_files(self.spark, path)


MOST_UNSENT: Final = 10_000
"""The maximum number of lines that wait for a webhook. If more lines wait, the oldest lines are dropped."""


class Undelivered(Exception):  # noqa: N818 (names what happened)
    """A line could not be delivered, and waits for the next batch. The message gives the reason without the address."""


def to_stream(stream: TextIO) -> Callable[[str], None]:
    def deliver(line: str) -> None:
        stream.write(f"{line}\n")
        stream.flush()

    return deliver


def to_webhook(url: str) -> Callable[[str], None]:
    """Return a function that sends a line as the JSON body of a POST. Raises `ValueError` if ``url`` is not an address.

    The function raises `Undelivered` if the answer is not 2xx, and does not follow redirects. No message contains the
    address, because the address may be a secret.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("--webhook must be an http:// or https:// address")
    client = HttpClient(url)

    def deliver(line: str) -> None:
        try:
            answer = client.post("", line.encode())
        except RequestFailed as error:
            raise Undelivered(type(error.__cause__ or error).__name__) from error
        if answer.status not in ACCEPTED:
            raise Undelivered(f"HTTP {answer.status}")

    return deliver


@dataclass(frozen=True, slots=True)
class DeliverySummary:
    """The numbers of a batch's lines. ``problem`` says why the ``unsent`` lines could not be delivered."""

    delivered: int = 0
    unsent: int = 0
    dropped: int = 0
    problem: str = ""


@dataclass(slots=True)
class StaleAlerts:
    """The job: finds stale partitions batch by batch and delivers a line for each alert.

    ``deliver`` sends a line or raises `Undelivered`. The job calls ``tell`` with the summary of each batch. Days before
    ``since`` are not read. Two jobs must not share a checkpoint.
    """

    spark: SparkSession
    tables: Tables
    checkpoint: str
    length: timedelta
    since: date
    deliver: Callable[[str], None]
    tell: Callable[[DeliverySummary], object] = lambda _summary: None
    clock: Clock = field(default_factory=SystemClock)
    _state: PartitionState = field(init=False)

    def __post_init__(self) -> None:
        self._state = PartitionState(self.spark, self.checkpoint, self.clock)

    def start(self, every: timedelta | None = None) -> StreamingQuery:
        """Start the query and return. The query reads the existing rows and, with ``every``, also later rows.

        Raises `UnusableState` if another version of Karrot wrote the checkpoint.
        """
        self._state.note()
        # In the joint stream, a tombstone has no ``offset``; a log-end sample has only the time and the log end.
        offset = F.when(~F.col("tombstone"), F.col("offset")).alias("offset")
        commits = self._new("commits").select(*PARTITION, offset, F.col("log_ts_ms").alias("at_ms"), "log_offset")
        end, at_ms = F.col("end_offset").alias("offset"), F.col("observed_at_ms").alias("at_ms")
        ends = self._new("ends").select("cluster", "topic", "partition", end, at_ms)
        records = commits.unionByName(ends, allowMissingColumns=True)
        return start_query(records, self.take, self.checkpoint, every)

    def take(self, records: DataFrame, batch: int) -> None:
        note, dropped = self._state.note(), 0
        if batch > note.batch:
            with persisted(records):
                times = self._state.advance(batch, records, self.length)
            new, total = self._state.lines(batch, MOST_UNSENT)
            unsent = [*note.unsent, *new][-MOST_UNSENT:]
            dropped = len(note.unsent) + total - len(unsent)
            self._state.remember(StaleNote(_VERSION, batch, {**times.sampled_ms}, {**times.held_until_ms}, unsent))
        note, delivered, problem = self._state.note(), 0, ""
        try:
            for line in note.unsent:
                self.deliver(line)
                delivered += 1
        except Undelivered as error:
            problem = str(error)
        if delivered:
            note.unsent = note.unsent[delivered:]
            self._state.remember(note)
        self.tell(DeliverySummary(delivered, len(note.unsent), dropped, problem))

    def _new(self, name: str) -> DataFrame:
        """Return the new rows of a table as a stream. Create the table's directory if it does not exist yet."""
        path = self.tables.path(name)
        make_directory(self.spark, path)
        # ``compact`` replaces files by one file with the same rows, which this stream reads as new rows.
        options = {"maxFileAge": ANY_AGE, "ignoreMissingFiles": "true"}
        reader = self.spark.readStream.schema(with_day(STREAMED[name])).options(**options)
        return reader.parquet(literal(path)).where(F.col("day") >= F.lit(self.since))
