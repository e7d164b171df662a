"""Runs ``karrot pipeline stale``: follows the tables ``commits`` and ``ends``, and alerts on stale partitions.

Spark's file source finds the new files, and Spark reduces a batch to one row per partition. The driver keeps the state
in ``<checkpoint>/state.json``. Before the driver delivers the first line of a batch, it writes the state and all lines
to deliver together. So a restart loses no line. A line is repeated only if the driver dies after it delivers the line
and before it records the delivery.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final, TextIO
from urllib.parse import urlsplit

import msgspec
import urllib3
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from karrot.event import ClusterPartition, LogEnd
from karrot.pipeline.schemas import STREAMED, with_day
from karrot.pipeline.stale.stale_partition_rule import (
    BatchCommits,
    GroupPartition,
    RecordPosition,
    StaleState,
    StaleWatch,
)
from karrot.pipeline.store.filesystem import literal, make_directory, read_text, write_text
from karrot.pipeline.store.shared_columns import LOG, PARTITION
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.query_runner import ANY_AGE, persisted, start_query

_TIMEOUT_S = 5.0
_ACCEPTED = range(200, 300)
MOST_UNSENT: Final = 10_000
"""The most lines that wait for a webhook. If more lines wait, the oldest ones are dropped."""


class Undelivered(Exception):  # noqa: N818 (names what happened)
    """A line could not be delivered, and waits for the next batch. The message gives the reason without the address."""


def to_stream(stream: TextIO) -> Callable[[str], None]:
    """Return a function that writes a line to a stream and flushes it."""

    def deliver(line: str) -> None:
        stream.write(f"{line}\n")
        stream.flush()

    return deliver


def to_webhook(url: str) -> Callable[[str], None]:
    """Return a function that sends a line as the JSON body of a POST. Raises `ValueError` if ``url`` is not an address.

    The function raises `Undelivered` if the answer is not 2xx. It does not follow redirects. No message contains the
    address, because the address may be a secret.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("--webhook must be an http:// or https:// address")
    http = urllib3.PoolManager(timeout=_TIMEOUT_S, headers={"Content-Type": "application/json"})

    def deliver(line: str) -> None:
        try:
            answer = http.request("POST", url, body=line.encode(), retries=False, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            raise Undelivered(type(error).__name__) from error
        if answer.status not in _ACCEPTED:
            raise Undelivered(f"HTTP {answer.status}")

    return deliver


@dataclass(frozen=True, slots=True)
class DeliverySummary:
    """Counts the lines of a batch. ``trouble`` says why the ``unsent`` lines could not be delivered."""

    delivered: int = 0
    unsent: int = 0
    dropped: int = 0
    trouble: str = ""


@dataclass(slots=True)
class StaleAlerts:
    """The job: finds stale partitions batch by batch and delivers a line for each alert.

    ``deliver`` sends a line or raises `Undelivered`. The job calls ``tell`` with the summary of each batch. Files of
    days before ``since`` are not read. Two jobs must not share a checkpoint.
    """

    spark: SparkSession
    tables: Tables
    checkpoint: str
    length: timedelta
    since: date
    deliver: Callable[[str], None]
    tell: Callable[[DeliverySummary], object] = lambda _summary: None
    _state: StaleState | None = field(default=None, init=False)

    def start(self, every: str | None = None) -> StreamingQuery:
        """Start the query and return. The query reads the existing rows and, with ``every``, also later rows."""
        commits, ends = _of_commits(self._new("commits")), _of_ends(self._new("ends"))
        return start_query(commits.unionByName(ends), self.take, self.checkpoint, every)

    def take(self, records: DataFrame, batch: int) -> None:
        """Judge one batch and deliver its lines. Spark calls this, and repeats the same batch after a crash."""
        state = self._recalled()
        watch = StaleWatch(self.length, state)
        with persisted(records):
            commits = {
                GroupPartition(row.cluster, row.consumer, row.topic, row.partition): BatchCommits(
                    row.offset,
                    RecordPosition(*row.newest),
                    RecordPosition(*row.first),
                    None if row.before is None else RecordPosition(*row.before),
                )
                for row in _newest_commits(records).toLocalIterator()
            }
            samples: dict[ClusterPartition, list[LogEnd]] = {}
            for row in _newest_samples(records, self.length).toLocalIterator():
                samples.setdefault(ClusterPartition(*row[:3]), []).append(LogEnd(*row[3:]))
        lines = [*state.unsent, *watch.take(batch, commits, samples)]
        dropped = max(0, len(lines) - MOST_UNSENT)
        self._remember(watch.saved(lines[dropped:]))
        self._deliver(dropped)

    def _deliver(self, dropped: int) -> None:
        state, delivered, trouble = self._recalled(), 0, ""
        try:
            for line in state.unsent:
                self.deliver(line)
                delivered += 1
        except Undelivered as error:
            trouble = str(error)
        if delivered:
            state.unsent = state.unsent[delivered:]
            self._remember(state)
        self.tell(DeliverySummary(delivered, len(state.unsent), dropped, trouble))

    def _new(self, name: str) -> DataFrame:
        """The new rows of a table as a stream. Creates the table's directory if it does not exist yet."""
        path = self.tables.path(name)
        make_directory(self.spark, path)
        reader = self.spark.readStream.schema(with_day(STREAMED[name])).option("maxFileAge", ANY_AGE)
        return reader.parquet(literal(path)).where(F.col("day") >= F.lit(self.since))

    def _recalled(self) -> StaleState:
        if self._state is None:
            text = read_text(self.spark, self._note)
            self._state = StaleState() if text is None else msgspec.json.decode(text, type=StaleState)
        return self._state

    def _remember(self, state: StaleState) -> None:
        write_text(self.spark, self._note, msgspec.json.encode(state).decode())
        self._state = state

    @property
    def _note(self) -> str:
        return f"{self.checkpoint.rstrip('/')}/state.json"


def _of_commits(commits: DataFrame) -> DataFrame:
    """Turn ``commits`` into rows of the stream of commits and log-end samples. A tombstone has no ``offset``."""
    offset = F.when(~F.col("tombstone"), F.col("offset"))
    return commits.select(*PARTITION, offset.alias("offset"), F.col("log_ts_ms").alias("at_ms"), "log_offset")


def _of_ends(ends: DataFrame) -> DataFrame:
    """Turn ``ends`` into rows of the same stream. A sample has no ``consumer`` and no ``log_offset``."""
    no_group, no_place = F.lit(None).cast("string").alias("consumer"), F.lit(None).cast("bigint").alias("log_offset")
    end, at_ms = F.col("end_offset").alias("offset"), F.col("observed_at_ms").alias("at_ms")
    return ends.select("cluster", no_group, "topic", "partition", end, at_ms, no_place)


def _newest_commits(records: DataFrame) -> DataFrame:
    """One row per partition of a group, with three records.

    These are the newest record, the first of the consecutive records with its offset, and the record before that one.
    """
    in_log = Window.partitionBy(*PARTITION).orderBy("at_ms", "log_offset")
    place = F.struct("at_ms", "log_offset")
    before = F.lag(place).over(in_log)
    begins = before.isNull() | ~F.col("offset").eqNullSafe(F.lag("offset").over(in_log))
    run = F.when(begins, F.struct(place.alias("first"), before.alias("before")))
    newest = F.struct(place.alias("newest"), "offset")
    committed = records.where(F.col("consumer").isNotNull() & F.col("at_ms").isNotNull())
    per_partition = committed.withColumn("run", run).groupBy(*PARTITION)
    summed = per_partition.agg(F.max(newest).alias("newest"), F.max("run").alias("run"))
    return summed.select(*PARTITION, "newest.offset", "newest.newest", "run.first", "run.before")


def _newest_samples(records: DataFrame, length: timedelta) -> DataFrame:
    """For each log, the samples within ``length`` before its newest one, and the newest sample before these."""
    of_log = Window.partitionBy(*LOG)
    since = F.max("at_ms").over(of_log) - length // timedelta(milliseconds=1)
    samples = records.where(F.col("consumer").isNull() & F.col("offset").isNotNull()).withColumn("since", since)
    first = F.max(F.when(F.col("at_ms") <= F.col("since"), F.col("at_ms"))).over(of_log)
    needed = samples.withColumn("first", F.coalesce(first, F.lit(0))).where(F.col("at_ms") >= F.col("first"))
    return needed.select(*LOG, "at_ms", F.col("offset").alias("end"))
