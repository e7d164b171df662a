"""Starts streaming queries, names their batches, and runs them until they end or are told to stop.

A query is stopped between two batches where possible. A batch fails, and is repeated, if the rows that it wrote are not
the rows that it read.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from karrot.pipeline.store.filesystem import read_text

CheckpointReader = Callable[[str], str | None]
"""The text of a file below a checkpoint, by its name; ``None`` if there is no such file."""

BATCH_BYTES: Final = 256 * 1024 * 1024
"""Bytes of files in a batch, compressed: what it holds in memory or on the local disk is a few times that."""

ANY_AGE: Final = "36500d"
"""As ``maxFileAge``: by default the file source passes by what is older than a week when it comes."""

_LOOK_S: Final = 0.2
_PATIENCE_S: Final = 20  # Kubernetes kills after 30


def start_query(
    lines: DataFrame, take: Callable[[DataFrame, int], None], checkpoint: str, every: str | None
) -> StreamingQuery:
    """A query that passes its batches to ``take``: what is there now or, with ``every``, also what comes later."""
    trigger: dict[str, Any] = {"processingTime": every} if every else {"availableNow": True}
    writer = lines.writeStream.foreachBatch(take).trigger(**trigger)
    return writer.option("checkpointLocation", checkpoint).start()


def checkpoint_id(spark: SparkSession) -> str:
    """The id of the query that calls: it is kept in its checkpoint, and a new checkpoint has another id."""
    return uuid.UUID(spark.sparkContext.getLocalProperty("sql.streaming.queryId")).hex


def checkpoint_reader(spark: SparkSession, checkpoint: str) -> CheckpointReader:
    """What a query has noted in its checkpoint."""
    return lambda name: read_text(spark, f"{checkpoint}/{name}")


def batch_name(checkpoint: str, batch: int) -> str:
    """What a batch is called in the tables; it begins with `batch_prefix` of its checkpoint."""
    return f"{batch_prefix(checkpoint)}{batch:06d}"


def batch_prefix(checkpoint: str) -> str:
    """How the names of all batches of a checkpoint begin."""
    return f"{checkpoint:.8}-"


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """A frame that is computed once, for everything that is made of it.

    On the local disk: a block is as large as what one task reads, and would be held in memory whole. Structs stay as
    they are: a column for each of their fields costs more to build than is saved by reading a few of them.
    """
    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


def run_queries(
    queries: Sequence[StreamingQuery], *, stop: Event, follow: bool, beside: Callable[[], object] = lambda: None
) -> None:
    """Wait until all queries have ended; with ``follow``, until one has, or ``stop`` is set. Then end them all.

    A batch under way is waited for, a while; ``beside`` is called again and again meanwhile, in this thread. Raises
    StreamingQueryException for a query that failed.
    """
    enough = all if follow else any
    try:
        while enough(query.isActive for query in queries) and not stop.wait(_LOOK_S):
            beside()
        told = stop.is_set()
    finally:
        stop.set()
        for query in queries:
            _end(query)
    failed = [error for query in queries if (error := query.exception()) is not None]
    if failed and not told:
        raise failed[0]


def _end(query: StreamingQuery) -> None:
    for _ in range(round(_PATIENCE_S / _LOOK_S)):
        if not query.isActive or not query.status["isTriggerActive"]:
            break
        time.sleep(_LOOK_S)
    query.stop()


class UnevenError(RuntimeError):
    """Rows in are not rows out: the tables do not hold what was read. Another run repeats the batch."""
