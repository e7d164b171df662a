"""Reads event lines as a stream, from segments of the archive or from a Kafka topic.

The name of an archive segment has its number of lines. The stream's checkpoint lists the segments of each batch.
"""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.store.hadoop_filesystem import exists, literal, place_for, plain_url
from karrot.pipeline.stream.record_sources import RecordsFromKafka
from karrot.pipeline.stream.streaming_queries import ANY_AGE, BATCH_BYTES, CheckpointReader
from karrot.reporters.archive.segment_store import lines_promised

BATCH_EVENTS: Final = 200_000
"""The most records of a topic in a batch; a record has a few kilobytes."""

_NAMES: Final = "*.jsonl.gz"
_LOG: Final = "sources/0"


class Segment(NamedTuple):
    """A file that Spark has read, and the day on which it was written.

    ``promised`` is the number of lines in the name of an archive segment, or 0 if the file has another name.
    """

    path: str
    promised: int
    written_on: date


@dataclass(frozen=True, slots=True)
class EventsFromArchive:
    """Reads a directory of segments. Hidden files are ignored (not complete yet), and folder names are not columns."""

    archive: str
    batch_bytes: int = BATCH_BYTES

    def lines(self, spark: SparkSession) -> DataFrame:
        """Stream the lines of new segments. Raises FileNotFoundError if the directory does not exist."""
        place = place_for(spark, self.archive)
        if not exists(spark, place):
            raise FileNotFoundError(f"{self.archive}: this directory of the archive does not exist")
        source = spark.readStream.format("text").options(
            lineSep="\n",
            recursiveFileLookup="true",
            pathGlobFilter=_NAMES,
            maxFileAge=ANY_AGE,
            maxBytesPerTrigger=str(self.batch_bytes),
            # Lines before the damage are read. The number in the segment's name shows how many lines are missing.
            ignoreCorruptFiles="true",
            # The archive's retention can delete a segment while it is read. The missing lines are counted too.
            ignoreMissingFiles="true",
        )
        return source.load(literal(place)).select(
            "value",
            F.col("_metadata.file_path").alias("path"),
            F.lit(None).cast("bigint").alias("offset"),
            F.col("_metadata.file_modification_time").alias("written_at"),
        )

    def checkpoint(self, job: str) -> str:
        return job

    def segments(self, read: CheckpointReader, batch: int) -> list[Segment]:
        """Return the files that a batch has read, from the log of Spark's file source.

        A DataFrame shows only files that have lines. The log (format version 1 since Spark 2.0) also has empty and
        deleted files. A batch is a range of the log, from the offset of the previous batch to the offset of this batch.
        """

        def offset(of: int) -> int:
            text = read(f"offsets/{of}")
            if text is None:
                raise FileNotFoundError(f"the checkpoint has no offsets of batch {of}")
            last = text.splitlines()[-1]
            return -1 if last == "-" else int(json.loads(last)["logOffset"])

        found: list[Segment] = []
        for number in range(0 if batch == 0 else offset(batch - 1) + 1, offset(batch) + 1):
            # Every tenth entry is compacted: it also holds the files of earlier entries.
            text = read(f"{_LOG}/{number}.compact") or read(f"{_LOG}/{number}")
            if text is None:
                raise FileNotFoundError(f"the checkpoint's log of files has no entry {number}")
            for entry in map(json.loads, text.splitlines()[1:]):
                if entry["batchId"] == number:
                    path = plain_url(entry["path"])
                    written_on = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC).date()
                    found.append(Segment(path, lines_promised(path.rpartition("/")[2]) or 0, written_on))
        return sorted(found)

    def lost(self, read: CheckpointReader, batch: int, lines: DataFrame) -> int:  # noqa: ARG002 (the names of segments say it)
        """Return 0: the missing lines of a segment are counted from the segment's name."""
        return 0


@dataclass(frozen=True, slots=True)
class EventsFromTopic:
    """Reads the topic to which the ``kafka`` reporter writes."""

    records: RecordsFromKafka

    def lines(self, spark: SparkSession) -> DataFrame:
        """Stream the values of new records. Raises `NoRecords`, `ConnectorMissing` and `PropertiesError`."""
        return self.records.records(spark).select(
            F.col("value").cast("string").alias("value"),
            F.concat_ws("-", "topic", "partition").alias("path"),
            "offset",
            F.col("timestamp").alias("written_at"),
        )

    def checkpoint(self, job: str) -> str:
        return f"{job}-{self.records.topic}"

    def segments(self, read: CheckpointReader, batch: int) -> list[Segment]:  # noqa: ARG002 (there are none)
        """Return no segment, because a topic has no files."""
        return []

    def lost(self, read: CheckpointReader, batch: int, lines: DataFrame) -> int:
        """Count the lines that the brokers deleted, by age or size, before the job read them."""
        partition = F.substring_index("path", "-", -1).cast("int").alias("log_partition")
        return self.records.passed(read, batch, lines.select(partition, F.col("offset").alias("log_offset"))).lost


EventSource = EventsFromArchive | EventsFromTopic
"""A place from which event lines are read.

Its lines have ``value``, ``path`` (of the segment or partition), ``offset`` (NULL in files) and ``written_at``. A
checkpoint belongs to one source and cannot continue with another.
"""
