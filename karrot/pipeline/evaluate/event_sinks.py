"""Writes verdicts as events: to the Kafka topic of the ``kafka`` reporter, or to the tables of ``ingest``."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from karrot.clock import Clock
from karrot.event_json_line import encode
from karrot.pipeline.evaluate.verdict_delivery import NotAccepted, RefusedVerdict, ToSend, VerdictDelivery, chunks
from karrot.pipeline.ingest.events import read_lines
from karrot.pipeline.ingest.job import LineBatch
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.query_runner import UnevenError, persisted
from karrot.reporters.kafka.reporter import Failed, NoTopic, TopicWriter, message_of

_AT_ONCE: Final = 5_000
_WAITS_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
_PART_BYTES: Final = 64 * 1024 * 1024
_LINE: Final = pa.schema(
    {
        "value": pa.string(),
        "path": pa.string(),
        "offset": pa.int64(),
        "written_at": pa.timestamp("us", "UTC"),
    }
)
"""The columns of the lines of an `karrot.pipeline.ingest.event_sources.EventSource`."""


@dataclass(frozen=True, slots=True)
class ToTopic:
    """Writes each verdict to a topic, in the form of the ``kafka`` reporter. ``open_topic`` connects.

    A failed message is sent again several times, each time with a new client.
    """

    open_topic: Callable[[], TopicWriter]
    waits_s: Sequence[float] = _WAITS_S
    pause: Callable[[float], object] = time.sleep

    def __call__(self, several: Iterable[ToSend]) -> VerdictDelivery:
        """Write all. Kafka can refuse some of them as too large. Raises `NotAccepted`."""
        count, refused = 0, list[RefusedVerdict]()
        for some in chunks(several, _AT_ONCE):
            count += len(some)
            refused += self._send(some)
        return VerdictDelivery(count - len(refused), refused)

    def _send(self, several: Sequence[ToSend]) -> list[RefusedVerdict]:
        refused = list[RefusedVerdict]()
        owed, why = several, ""
        for wait_s in (0.0, *self.waits_s):
            self.pause(wait_s)
            try:
                with closing(self.open_topic()) as topic:
                    outcomes = topic.send([message_of(each.stored) for each in owed])
            except NoTopic as error:
                why = str(error)
                continue
            again = list[ToSend]()
            for each, outcome in zip(owed, outcomes, strict=True):
                if isinstance(outcome, Failed) and outcome.is_final:
                    refused.append(RefusedVerdict.of(each, "Kafka", outcome.reason))
                elif isinstance(outcome, Failed):
                    again.append(each)
                    why = outcome.text
            if not again:
                return refused
            owed = again
        raise NotAccepted(f"Kafka does not take the verdicts: {why}")


@dataclass(frozen=True, slots=True)
class ToTables:
    """Appends each verdict to the tables ``events`` and ``partitions``, as ``karrot pipeline ingest`` does.

    The caller must hold the lease of these tables. Rows of a batch that is sent again are written once.
    """

    spark: SparkSession
    tables: Tables
    clock: Clock

    def __call__(self, several: Iterable[ToSend]) -> VerdictDelivery:
        """Write all, in parts that fit into memory. Raises `UnevenError`."""
        return VerdictDelivery(sum(map(self._write, _parts(several))))

    def _write(self, part: Sequence[tuple[ToSend, str]]) -> int:
        first, _ = part[0]
        written_at = datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC)
        path = f"{first.stored.event.cluster}/evaluate"
        rows = [
            {"value": line, "path": path, "offset": each.stored.seq, "written_at": written_at} for each, line in part
        ]
        batch_id = f"{first.stored.log_id:.8}-{first.stored.seq:012d}"
        with persisted(read_lines(self.spark.createDataFrame(pa.Table.from_pylist(rows, _LINE)))) as lines:
            summary = LineBatch(self.spark, self.tables, batch_id, lines, []).write()
        if not summary.is_even:
            raise UnevenError(f"batch {batch_id}: {summary}")
        return len(part)


def _parts(several: Iterable[ToSend]) -> Iterator[list[tuple[ToSend, str]]]:
    """Encode the verdicts as lines, and yield parts of at most `_PART_BYTES`, or of one larger line."""
    part, size = list[tuple[ToSend, str]](), 0
    for each in several:
        line = encode(each.stored).decode().removesuffix("\n")
        if part and size + len(line) > _PART_BYTES:
            yield part
            part, size = [], 0
        part.append((each, line))
        size += len(line)
    if part:
        yield part
