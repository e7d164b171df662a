"""The two roads on which the service's events come: segments of the archive, or a topic of Kafka. Both are streams."""

from dataclasses import dataclass
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.store.filesystem import exists, literal
from karrot.pipeline.stream.batch_segments import Segment, segments_of_batch
from karrot.pipeline.stream.checkpoints import Read
from karrot.pipeline.stream.record_sources import FromKafka
from karrot.pipeline.stream.streaming_query import BATCH_BYTES, EVER

BATCH_EVENTS: Final = 200_000
"""Records of a topic in a batch: a few kilobytes each."""

_NAMES: Final = "*.jsonl.gz"


class Road(Protocol):
    """Where lines come from."""

    def lines(self, spark: SparkSession) -> DataFrame:
        """The stream.

        ``value`` is a line, ``path`` what it is of, ``offset`` its place there where that is known at once; and when it
        was ``written_at``.
        """

    def checkpoint(self, job: str) -> str:
        """What a job's checkpoint is called: it is of one road and cannot go on with another."""

    def segments(self, read: Read, batch: int) -> list[Segment]:
        """The files that a batch has taken."""

    def lost(self, read: Read, batch: int, lines: DataFrame) -> int:
        """How many lines were gone before a batch, as far as that is known, could read them."""


@dataclass(frozen=True, slots=True)
class FromArchive:
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
            maxFileAge=EVER,
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

    def segments(self, read: Read, batch: int) -> list[Segment]:
        """The empty and the vanished among them."""
        return segments_of_batch(read, batch)

    def lost(self, read: Read, batch: int, lines: DataFrame) -> int:  # noqa: ARG002 (the names of segments say it)
        """None: what a segment lacks is counted by its name."""
        return 0


@dataclass(frozen=True, slots=True)
class FromTopic:
    """From the topic that the ``kafka`` reporter writes to."""

    records: FromKafka

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

    def segments(self, read: Read, batch: int) -> list[Segment]:  # noqa: ARG002 (there are none)
        """None: a topic has no files that could come up short."""
        return []

    def lost(self, read: Read, batch: int, lines: DataFrame) -> int:
        """What the brokers deleted, by age or size, before it was read."""
        partition = F.substring_index("path", "-", -1).cast("int").alias("log_partition")
        return self.records.passed(read, batch, lines.select(partition, F.col("offset").alias("log_offset"))).lost
