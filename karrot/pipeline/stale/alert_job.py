"""Runs ``karrot pipeline stale``: alerts on stale partitions, from ``commits`` and ``ends`` as they are written.

Spark's file source says which files are new, and a batch becomes a row per partition. The driver keeps what it needs of
each in ``<checkpoint>/state.json``: it writes the batch's state and the lines to deliver together, before it delivers
the first. So a restart loses no line, and repeats one only if the driver died between delivery and its note.
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
from karrot.pipeline.store.tables import Tables
from karrot.pipeline.stream.query_runner import ANY_AGE, persisted, start_query

_TIMEOUT_S = 5.0
_ACCEPTED = range(200, 300)
MOST_UNSENT: Final = 10_000
"""Lines that wait for a webhook, at most: of more, the oldest are dropped."""


class Undelivered(Exception):  # noqa: N818 (names what happened)
    """A line that could not be delivered; it is kept for another time. The text is a reason without the address."""


def to_stream(stream: TextIO) -> Callable[[str], None]:
    """Deliver lines to a stream, each at once."""

    def deliver(line: str) -> None:
        stream.write(f"{line}\n")
        stream.flush()

    return deliver


def to_webhook(url: str) -> Callable[[str], None]:
    """Deliver lines by POST, each as a body of JSON; the address may be a secret. Raises `ValueError` for none.

    What delivers raises `Undelivered` unless the answer is 2xx; redirects are not followed.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("--webhook is no http:// or https:// address")
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
    """What became of a batch's lines. ``trouble`` is why those that are ``unsent`` could not be delivered."""

    delivered: int = 0
    unsent: int = 0
    dropped: int = 0
    trouble: str = ""


@dataclass(slots=True)
class StaleAlerts:
    """The job. ``deliver`` takes a line or raises `Undelivered`; ``tell`` gets what became of each batch.

    Files of days before ``since`` are not read. Two of it must not share a checkpoint.
    """

    spark: SparkSession
    tables: Tables
    checkpoint: str
    length: timedelta
    since: date
    deliver: Callable[[str], None]
    tell: Callable[[DeliverySummary], object] = lambda _told: None
    _state: StaleState | None = field(default=None, init=False)

    def start(self, every: str | None = None) -> StreamingQuery:
        """Begin, and return at once: with what is there or, with ``every``, with what comes too."""
        commits, ends = _of_commits(self._new("commits")), _of_ends(self._new("ends"))
        return start_query(commits.unionByName(ends), self.take, self.checkpoint, every)

    def take(self, records: DataFrame, batch: int) -> None:
        """Judge one batch and deliver what follows; called by Spark, again for the same batch after a crash."""
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
            looks: dict[ClusterPartition, list[LogEnd]] = {}
            for row in _newest_looks(records, self.length).toLocalIterator():
                looks.setdefault(ClusterPartition(*row[:3]), []).append(LogEnd(*row[3:]))
        lines = [*state.unsent, *watch.take(batch, commits, looks)]
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
        """New rows of a table as a stream; the directory need not be there yet."""
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
    """Rows of ``commits`` for a stream of commits and looks: a tombstone has no ``offset``."""
    offset = F.when(~F.col("tombstone"), F.col("offset"))
    return commits.select(*PARTITION, offset.alias("offset"), F.col("log_ts_ms").alias("at_ms"), "log_offset")


def _of_ends(ends: DataFrame) -> DataFrame:
    """Rows of ``ends`` for that stream: a look has no ``consumer`` and no ``log_offset``."""
    nobody, nowhere = F.lit(None).cast("string").alias("consumer"), F.lit(None).cast("bigint").alias("log_offset")
    end, at_ms = F.col("end_offset").alias("offset"), F.col("observed_at_ms").alias("at_ms")
    return ends.select("cluster", nobody, "topic", "partition", end, at_ms, nowhere)


def _newest_commits(records: DataFrame) -> DataFrame:
    """A row per partition of a group: its newest record, the first in a row that says the same, and the one before."""
    in_log = Window.partitionBy(*PARTITION).orderBy("at_ms", "log_offset")
    place = F.struct("at_ms", "log_offset")
    before = F.lag(place).over(in_log)
    begins = before.isNull() | ~F.col("offset").eqNullSafe(F.lag("offset").over(in_log))
    run = F.when(begins, F.struct(place.alias("first"), before.alias("before")))
    newest = F.struct(place.alias("newest"), "offset")
    committed = records.where(F.col("consumer").isNotNull() & F.col("at_ms").isNotNull())
    per_partition = committed.withColumn("run", run).groupBy(*PARTITION)
    told = per_partition.agg(F.max(newest).alias("newest"), F.max("run").alias("run"))
    return told.select(*PARTITION, "newest.offset", "newest.newest", "run.first", "run.before")


def _newest_looks(records: DataFrame, length: timedelta) -> DataFrame:
    """The looks at each log that are less than ``length`` older than its newest one, and the newest before these."""
    of_log = Window.partitionBy(*LOG)
    since = F.max("at_ms").over(of_log) - length // timedelta(milliseconds=1)
    looks = records.where(F.col("consumer").isNull() & F.col("offset").isNotNull()).withColumn("since", since)
    first = F.max(F.when(F.col("at_ms") <= F.col("since"), F.col("at_ms"))).over(of_log)
    needed = looks.withColumn("first", F.coalesce(first, F.lit(0))).where(F.col("at_ms") >= F.col("first"))
    return needed.select(*LOG, "at_ms", F.col("offset").alias("end"))
