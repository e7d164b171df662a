"""Reads the lines of the service's events as a stream, from segments of the archive or from a topic of Kafka.

The name of a segment promises how many lines it has. The checkpoint says which segments a batch has taken.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, NamedTuple, Protocol, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.store.filesystem import exists, literal, plain_url
from karrot.pipeline.stream.query_runner import ANY_AGE, BATCH_BYTES, CheckpointReader
from karrot.pipeline.stream.record_sources import RecordsFromKafka
from karrot.reporters.archive.segment_store import lines_promised

BATCH_EVENTS: Final = 200_000
"""Records of a topic in a batch: a few kilobytes each."""

_NAMES: Final = "*.jsonl.gz"
_LOG: Final = "sources/0"


class Segment(NamedTuple):
    """A file that Spark took, and when it was written (epoch milliseconds).

    ``promised`` is the number of lines that the name of an archive's segment ends in, ``None`` for any other name.
    """

    path: str
    promised: int | None
    written_ms: int

    @classmethod
    def taken(cls, url: str, written_ms: int) -> Self:
        """The segment that an entry of the file source's log names."""
        path = plain_url(url)
        return cls(path, lines_promised(path.rpartition("/")[2]), written_ms)

    @property
    def written_on(self) -> date:
        """The day, in UTC, that the segment was written on."""
        return datetime.fromtimestamp(self.written_ms / 1000, UTC).date()

    def missing(self, lines: int) -> int:
        """How many lines the segment lacks of those that its name promises."""
        return max(0, (self.promised or 0) - lines)


def segments_of_batch(read: CheckpointReader, batch: int) -> list[Segment]:
    """Which segments a batch has taken, the empty and the vanished among them, as the file source's own log says.

    A DataFrame tells of the files that it found lines in. The log (its format is version 1 since Spark 2.0) holds an
    entry per file; a batch is a range of the log, from the offset of the batch before to its own.
    """
    first = 0 if batch == 0 else _log_offset(read, batch - 1) + 1
    numbers = range(first, _log_offset(read, batch) + 1)
    return sorted(segment for number in numbers for segment in _entries(read, number))


def _log_offset(read: CheckpointReader, batch: int) -> int:
    text = read(f"offsets/{batch}")
    if text is None:
        raise FileNotFoundError(f"the checkpoint has no offsets of batch {batch}")
    offset = text.splitlines()[-1]
    return -1 if offset == "-" else int(json.loads(offset)["logOffset"])


def _entries(read: CheckpointReader, number: int) -> Iterator[Segment]:
    """The files of one log entry: each tenth is compacted, and then holds those of its predecessors too."""
    text = read(f"{_LOG}/{number}.compact") or read(f"{_LOG}/{number}")
    if text is None:
        raise FileNotFoundError(f"the checkpoint's log of files has no entry {number}")
    for entry in map(json.loads, text.splitlines()[1:]):
        if entry["batchId"] == number:
            yield Segment.taken(entry["path"], entry["timestamp"])


class EventSource(Protocol):
    """Where lines come from."""

    def lines(self, spark: SparkSession) -> DataFrame:
        """The stream: ``value``, a line; ``path``, what it is of; its ``offset`` there, if known; ``written_at``."""

    def checkpoint(self, job: str) -> str:
        """The name of a job's checkpoint: it belongs to one source and cannot continue with another."""

    def segments(self, read: CheckpointReader, batch: int) -> list[Segment]:
        """The files that a batch has taken."""

    def lost(self, read: CheckpointReader, batch: int, lines: DataFrame) -> int:
        """How many lines were gone before a batch, as far as that is known, could read them."""


@dataclass(frozen=True, slots=True)
class EventsFromArchive:
    """From a directory of segments. Hidden names are not segments yet; folders are not columns."""

    archive: str
    batch_bytes: int = BATCH_BYTES

    def lines(self, spark: SparkSession) -> DataFrame:
        """The lines of new segments. Raises FileNotFoundError if there is no archive."""
        if not exists(spark, self.archive):
            raise FileNotFoundError(f"{self.archive}: there is no archive")
        source = spark.readStream.format("text").options(
            lineSep="\n",
            recursiveFileLookup="true",
            pathGlobFilter=_NAMES,
            maxFileAge=ANY_AGE,
            maxBytesPerTrigger=str(self.batch_bytes),
            # Lines before the damage are kept; what the name promises and is not there is counted.
            ignoreCorruptFiles="true",
        )
        return source.load(literal(self.archive)).select(
            "value",
            F.col("_metadata.file_path").alias("path"),
            F.lit(None).cast("bigint").alias("offset"),
            F.col("_metadata.file_modification_time").alias("written_at"),
        )

    def checkpoint(self, job: str) -> str:
        """The job's own name."""
        return job

    def segments(self, read: CheckpointReader, batch: int) -> list[Segment]:
        """The empty and the vanished among them."""
        return segments_of_batch(read, batch)

    def lost(self, read: CheckpointReader, batch: int, lines: DataFrame) -> int:  # noqa: ARG002 (the names of segments say it)
        """None: what a segment lacks is counted by its name."""
        return 0


@dataclass(frozen=True, slots=True)
class EventsFromTopic:
    """From the topic that the ``kafka`` reporter writes to."""

    records: RecordsFromKafka

    def lines(self, spark: SparkSession) -> DataFrame:
        """The values of new records. Raises `NoRecords`, `ConnectorMissing` and `PropertiesError`."""
        return self.records.records(spark).select(
            F.col("value").cast("string").alias("value"),
            F.concat_ws("-", "topic", "partition").alias("path"),
            "offset",
            F.col("timestamp").alias("written_at"),
        )

    def checkpoint(self, job: str) -> str:
        """The job and the topic."""
        return f"{job}-{self.records.topic}"

    def segments(self, read: CheckpointReader, batch: int) -> list[Segment]:  # noqa: ARG002 (there are none)
        """None: a topic has no files that could come up short."""
        return []

    def lost(self, read: CheckpointReader, batch: int, lines: DataFrame) -> int:
        """What the brokers deleted, by age or size, before it was read."""
        partition = F.substring_index("path", "-", -1).cast("int").alias("log_partition")
        return self.records.passed(read, batch, lines.select(partition, F.col("offset").alias("log_offset"))).lost
