"""Runs ``karrot pipeline stale``: follows the tables ``commits`` and ``ends``, and alerts on stale partitions.

Spark's file source finds the new files, and Spark judges all partitions. The state of the partitions is in tables in
the checkpoint (`PartitionState`). Before the driver delivers the first line of a batch, the state of the batch is
written, with all lines to deliver. So a restart loses no line. A line is repeated only if the driver dies after it
delivers the line and before it records the delivery.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final, TextIO
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from urllib3.exceptions import HTTPError

from karrot.clock import Clock, SystemClock
from karrot.http.pool import open_pool
from karrot.pipeline.schemas import STREAMED, with_day
from karrot.pipeline.stale.partition_state import PartitionState, StateNote
from karrot.pipeline.store.filesystem import literal, make_directory
from karrot.pipeline.store.shared_columns import PARTITION
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.query_runner import ANY_AGE, persisted, start_query

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
    http = open_pool(url, headers={"Content-Type": "application/json"})

    def deliver(line: str) -> None:
        try:
            answer = http.request("POST", url, body=line.encode())
        except HTTPError as error:
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
    clock: Clock = field(default_factory=SystemClock)
    _state: PartitionState = field(init=False)

    def __post_init__(self) -> None:
        self._state = PartitionState(self.spark, self.checkpoint, self.clock)

    def start(self, every: str | None = None) -> StreamingQuery:
        """Start the query and return. The query reads the existing rows and, with ``every``, also later rows.

        Raises `UnknownState` if a newer Karrot wrote the checkpoint.
        """
        self._state.note()
        commits, ends = _of_commits(self._new("commits")), _of_ends(self._new("ends"))
        return start_query(commits.unionByName(ends), self.take, self.checkpoint, every)

    def take(self, records: DataFrame, batch: int) -> None:
        """Judge one batch and deliver its lines. Spark calls this, and repeats the same batch after a crash."""
        note, dropped = self._state.note(), 0
        if batch > note.batch:
            with persisted(records):
                times = self._state.advance(batch, records, self.length)
            new, total = self._state.lines(batch, MOST_UNSENT)
            unsent = [*note.unsent, *new][-MOST_UNSENT:]
            dropped = len(note.unsent) + total - len(unsent)
            self._state.remember(
                StateNote(
                    batch=batch,
                    sampled_ms=dict(times.sampled_ms),
                    held_until_ms=dict(times.held_until_ms),
                    unsent=unsent,
                )
            )
        self._deliver(dropped)

    def _deliver(self, dropped: int) -> None:
        note, delivered, trouble = self._state.note(), 0, ""
        try:
            for line in note.unsent:
                self.deliver(line)
                delivered += 1
        except Undelivered as error:
            trouble = str(error)
        if delivered:
            note.unsent = note.unsent[delivered:]
            self._state.remember(note)
        self.tell(DeliverySummary(delivered, len(note.unsent), dropped, trouble))

    def _new(self, name: str) -> DataFrame:
        """The new rows of a table as a stream. Creates the table's directory if it does not exist yet."""
        path = self.tables.path(name)
        make_directory(self.spark, path)
        # ``compact`` replaces files by one with the same rows, which are new to this stream.
        options = {"maxFileAge": ANY_AGE, "ignoreMissingFiles": "true"}
        reader = self.spark.readStream.schema(with_day(STREAMED[name])).options(**options)
        return reader.parquet(literal(path)).where(F.col("day") >= F.lit(self.since))


def _of_commits(commits: DataFrame) -> DataFrame:
    """Turn ``commits`` into rows of the stream of commits and log-end samples. A tombstone has no ``offset``."""
    offset = F.when(~F.col("tombstone"), F.col("offset"))
    return commits.select(*PARTITION, offset.alias("offset"), F.col("log_ts_ms").alias("at_ms"), "log_offset")


def _of_ends(ends: DataFrame) -> DataFrame:
    """Turn ``ends`` into rows of the same stream. A sample has no ``consumer`` and no ``log_offset``."""
    no_group, no_place = F.lit(None).cast("string").alias("consumer"), F.lit(None).cast("bigint").alias("log_offset")
    end, at_ms = F.col("end_offset").alias("offset"), F.col("observed_at_ms").alias("at_ms")
    return ends.select("cluster", no_group, "topic", "partition", end, at_ms, no_place)
