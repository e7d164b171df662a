"""Streams the newest event of each group to CloudWatch, in a separate query, so that the tables do not wait."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, StringType, StructField, StructType

from karrot.clock import Clock
from karrot.pipeline.ingest.event_sources import EventSource
from karrot.pipeline.ingest.events import REQUIRED, parsed, why_unusable
from karrot.pipeline.publish.cloudwatch_reporter_on_driver import NoteStore, Published, Publisher
from karrot.pipeline.schemas import CORRUPT, LINE, columns_of
from karrot.pipeline.store.filesystem import read_text, write_text
from karrot.pipeline.store.shared_columns import GROUP
from karrot.pipeline.stream.query_runner import start_query
from karrot.reporters.cloudwatch.event_to_data import HEARTBEAT_SOURCES

_PLACE: Final = StructType(
    [StructField("received_at_ms", LongType()), StructField("log_id", StringType()), StructField("seq", LongType())]
)
NEWEST: Final = StructType(
    [StructField("first", _PLACE), StructField("place", _PLACE), StructField("line", StringType())]
)
"""A line, its place in the archive, and ``first``: the place of its group's first line that is not too old.

Sorted by ``first`` and ``place``, groups are in the order of their first events. The limit on groups uses this order.
"""

_BURROW_TOPIC: Final = "__consumer_offsets"  # a group that reads this topic may be Burrow itself, which gets no metrics
_VALUES: Final = ("total_lag", "max_lag", "scalable_lag", "lag_seconds")
_ASKED: Final = (*REQUIRED, "source", "kind", "complete", "max_partition", *_VALUES)
# Lags are read as texts: only whether they are known matters here, and Burrow's lags can be too large for Spark.
_READ: Final = StructType(
    [StructField(name, StringType() if name in _VALUES else LINE[name].dataType) for name in _ASKED]
).add(CORRUPT, StringType())

_CLOCKS_APART_MS: Final = 300_000
"""The largest assumed difference between this clock and the clock that sets the times of segments or records."""


def notes_beside(spark: SparkSession, checkpoint: str) -> NoteStore:
    """Keep notes as files in a folder next to the checkpoint.

    If the checkpoint is deleted, the job begins with the oldest segment again, but still has the notes.
    """

    def path(name: str) -> str:
        return f"{checkpoint.rstrip('/')}-notes/{name}.json"

    def recall(name: str) -> bytes | None:
        text = read_text(spark, path(name))
        return None if text is None else text.encode()

    def remember(name: str, note: bytes) -> None:
        write_text(spark, path(name), note.decode())

    return NoteStore(recall, remember)


@dataclass(frozen=True, slots=True)
class Fanout:
    """The job: publishes the newest events of each batch, and calls ``tell`` with the summary of the batch.

    A second job or the service must not publish the same groups at the same time.
    """

    spark: SparkSession
    source: EventSource
    checkpoint: str
    publisher: Publisher
    clock: Clock
    tell: Callable[[Published], object] = lambda _published: None

    def start(self, every: str | None = None) -> StreamingQuery:
        """Start the query and return. Skip segments that are too old. Raises the errors of the source's ``lines``."""
        oldest_ms = self._oldest_ms(self.clock.wall_ms()) - _CLOCKS_APART_MS
        lines = self.source.lines(self.spark)
        recent = lines.where(F.col("written_at") >= F.lit(datetime.fromtimestamp(oldest_ms / 1000, UTC)))
        return start_query(recent, self.take, self.checkpoint, every)

    def take(self, lines: DataFrame, _batch: int) -> None:
        """Publish one batch. Spark calls this, and repeats the same batch after a crash."""
        now_ms = self.clock.wall_ms()
        options = self.publisher.options
        chosen = newest(
            lines, now_ms=now_ms, oldest_ms=self._oldest_ms(now_ms), min_complete=options.min_complete
        ).repartition(1)
        in_turn = chosen.sortWithinPartitions("first", "place").select("line")
        self.tell(self.publisher.publish(row.line for row in in_turn.toLocalIterator()))

    def _oldest_ms(self, now_ms: int) -> int:
        """The time before which an observed value is too old to help any alarm."""
        return now_ms - 1000 * self.publisher.options.ttl_s


def newest(lines: DataFrame, *, now_ms: int, oldest_ms: int, min_complete: float) -> DataFrame:
    """Make `NEWEST` from the lines of an `EventSource`. Lines that ingest would refuse are left out.

    The time of a line is the time of receipt minus the time from observation to receipt. Lines older than ``oldest_ms``
    are left out, and no line counts as newer than ``now_ms``. Of each group, the newest line of each kind is kept, for
    two reasons. A newer verdict without a lag would hide an earlier lag, and resync is no heartbeat. Most groups
    have one kind.
    """
    read = lines.withColumn("line", parsed(_READ)).where(why_unusable().isNull())
    fresh = _with_age(read, now_ms).where(F.col("at_ms") >= oldest_ms)
    by_kind = fresh.groupBy(*(F.col("line")[name].alias(name) for name in GROUP), _says(min_complete)).agg(
        F.min("place").alias("first"),
        F.max(F.struct("at_ms", "place", "value")).alias("newest"),
    )
    return (
        by_kind.withColumn("first", F.min("first").over(Window.partitionBy(*GROUP)))
        .withColumns({"place": F.col("newest.place"), "line": F.col("newest.value")})
        .select(*columns_of(NEWEST))
    )


def _with_age(read: DataFrame, now_ms: int) -> DataFrame:
    received, observed = F.col("line.received_at_ms"), F.col("line.observed_at_ms")
    # An impossible time overflows here to NULL: the age is then unknown, and the line is left out.
    before_receipt = F.greatest(F.lit(0), F.try_subtract(received, observed))
    place = F.struct(*(F.col("line")[name].alias(name) for name in _PLACE.names))
    at_ms = F.try_subtract(F.least(received, F.lit(now_ms)), before_receipt)
    return read.where(observed > 0).withColumns({"at_ms": at_ms, "place": place})


def _says(min_complete: float) -> Column:
    """The kind of a line. Lines of the same kind give values for the same metrics."""
    line = F.col("line")
    return F.struct(
        line["kind"].alias("kind"),
        line["source"].isin([source.value for source in HEARTBEAT_SOURCES]).alias("is_heartbeat"),
        F.coalesce(line["complete"] < min_complete, F.lit(False)).alias("is_incomplete"),
        F.coalesce(line["max_partition"]["topic"] == _BURROW_TOPIC, F.lit(False)).alias("is_of_burrow"),
        *(line[name].isNotNull().alias(name) for name in _VALUES),
    ).alias("says")
