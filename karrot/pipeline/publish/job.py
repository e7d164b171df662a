"""Events to the tables and to CloudWatch while they are written: two queries, so that neither waits for the other."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from karrot.clock import Clock
from karrot.pipeline.ingest.event_sources import Road
from karrot.pipeline.publish.cloudwatch import Notes, Published, Publisher
from karrot.pipeline.publish.newest_per_group import newest
from karrot.pipeline.store.filesystem import read_text, write_text
from karrot.pipeline.stream.streaming_query import started

_CLOCKS_APART_MS: Final = 300_000
"""How far the clock that dates segments or records and this one may be apart."""


def notes_beside(spark: SparkSession, checkpoint: str) -> Notes:
    """Notes as files beside a checkpoint: a new checkpoint, which begins with the oldest segment, still has them."""

    def path(name: str) -> str:
        return f"{checkpoint.rstrip('/')}-notes/{name}.json"

    def recall(name: str) -> bytes | None:
        text = read_text(spark, path(name))
        return None if text is None else text.encode()

    def remember(name: str, note: bytes) -> None:
        write_text(spark, path(name), note.decode())

    return Notes(recall, remember)


@dataclass(frozen=True, slots=True)
class Fanout:
    """The job that publishes. ``tell`` gets what became of each batch.

    Two of it must not publish the same events, nor one of it what the service publishes.
    """

    spark: SparkSession
    road: Road
    checkpoint: str
    publisher: Publisher
    clock: Clock
    tell: Callable[[Published], object] = lambda _published: None

    def start(self, every: str | None = None) -> StreamingQuery:
        """Begin, and return at once. Raises what the road's ``lines`` raises.

        Segments and records that can only hold what is too old by now are passed over unread.
        """
        oldest_ms = self._oldest_ms(self.clock.wall_ms()) - _CLOCKS_APART_MS
        lines = self.road.lines(self.spark)
        recent = lines.where(F.col("written_at") >= F.lit(datetime.fromtimestamp(oldest_ms / 1000, UTC)))
        return started(recent, self.take, self.checkpoint, every)

    def take(self, lines: DataFrame, _batch: int) -> None:
        """Publish one batch; called by Spark, again for the same batch after a crash."""
        now_ms = self.clock.wall_ms()
        options = self.publisher.options
        told = newest(
            lines, now_ms=now_ms, oldest_ms=self._oldest_ms(now_ms), min_complete=options.min_complete
        ).repartition(1)
        in_turn = told.sortWithinPartitions("first", "place").select("line")
        self.tell(self.publisher.publish(row.line for row in in_turn.toLocalIterator()))

    def _oldest_ms(self, now_ms: int) -> int:
        """What was observed before that is of no help to any alarm."""
        return now_ms - 1000 * self.publisher.options.ttl_s
