"""Reads records of ``__consumer_offsets`` as a stream, from Kafka or from Parquet files with the same columns.

The checkpoint of Spark's Kafka source has the offset range of each batch. A batch holds the records that still existed.
If an offset of the range has no readable record, the reason is one of these:

- The offset belongs to a transaction's marker or to an aborted transaction.
- The record was compacted away, because a newer record has the same key.
- The offset is before the log start: the record was deleted, perhaps before it was read.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from karrot.event import TopicPartition
from karrot.kafka.client_properties import PropertiesError
from karrot.pipeline.schemas_and_conversions import BINARY, INT, LONG, STRING, TIME, struct
from karrot.pipeline.spark_session import is_submitted
from karrot.pipeline.store.hadoop_filesystem import exists, literal, place_for
from karrot.pipeline.stream.kafka_read_options import KafkaConnection, StartingOffsets
from karrot.pipeline.stream.streaming_queries import ANY_AGE, BATCH_BYTES, CheckpointReader
from karrot.watch.cluster_interface import ClusterError, Failure

OFFSETS_TOPIC: Final = "__consumer_offsets"

_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_OLD_READER: Final = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
_INITIAL: Final = "sources/0/0"
"""The checkpoint file with the offsets at which the first batch began."""

BATCH_RECORDS: Final = 2_000_000
"""The maximum number of records in a batch from Kafka. A record needs a few hundred bytes in its batch."""

RECORD: Final = struct(key=BINARY, value=BINARY, topic=STRING, partition=INT, offset=LONG, timestamp=TIME)
"""The columns of a record from Spark's Kafka source."""


CONNECTOR: Final = "4.2.0"
"""The newest Spark version with a published Kafka connector. The extra ``spark`` installs no newer version."""


class NoRecords(LookupError):  # noqa: N818 (names the state of the source)
    """The topic or the directory has no records that can be read. The message is for the user."""


class ConnectorMissing(RuntimeError):  # noqa: N818 (names the state of the machine)
    """Spark has no Kafka connector. The message names the option that adds the connector."""

    def __init__(self) -> None:
        version = min(pyspark.__version__, CONNECTOR, key=lambda each: [int(part) for part in re.findall(r"\d+", each)])
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
        advice = (
            f"give spark-submit --packages {package} before the script, or --jars with the connector's jars"
            if is_submitted()
            else f"add --conf spark.jars.packages={package}, or add the connector's jars with --conf spark.jars=…"
        )
        super().__init__(f"Spark's jars do not include its Kafka connector: {advice}")


class PassedOffsets(NamedTuple):
    offsets: int
    lost: int


class OffsetRange(NamedTuple):
    """The offsets from ``first`` up to, not including, ``until``.

    If ``until`` is lower than ``first``, the topic was created again.
    """

    first: int
    until: int

    def offsets(self, log_start: int) -> int:
        """Return the number of offsets in the range. For a recreated topic, count all offsets of the new topic."""
        return self.until - (self.first if self.first <= self.until else min(log_start, self.until))

    def lost(self, log_start: int, first_read: int | None) -> int:
        """Return the number of offsets in the range that Kafka deleted before they were read."""
        if self.first > self.until:
            return self.offsets(log_start)
        before = min(log_start, self.until if first_read is None else first_read)
        return max(0, before - self.first)


class TopicMetadata(Protocol):
    """The requests to Kafka. Every method can raise `karrot.watch.cluster_interface.ClusterError`."""

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the number of partitions of each existing topic."""

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """Return the log start offset of each partition, or the failure of its request."""

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """Return the log end offset of each partition, or the failure of its request."""


@dataclass(frozen=True, slots=True)
class RecordsFromKafka:
    """Reads ``__consumer_offsets`` or another topic. Without a checkpoint, reading begins at ``start``."""

    brokers: KafkaConnection
    kafka: TopicMetadata
    start: StartingOffsets
    topic: str = OFFSETS_TOPIC
    most: int = BATCH_RECORDS
    may_repeat: bool = False

    def records(self, spark: SparkSession) -> DataFrame:
        """Return the stream of records, without the records of aborted transactions.

        The stream joins no consumer group, because a group would write to ``__consumer_offsets``, which the stream may
        read. Raises `NoRecords`, `ConnectorMissing` and `PropertiesError`.
        """
        count = self.kafka.partitions([self.topic]).get(self.topic)
        if not count:
            raise NoRecords(
                f"the cluster shows no topic {self.topic}: it does not exist yet, or this user may not describe it"
            )
        _require_connector(spark)
        # Spark's newer method of finding offsets ignores internal topics. The stream would have no rows and no error.
        spark.conf.set(_OLD_READER, "true")
        reader = spark.readStream.format("kafka").options(
            **self.brokers.options,
            **self.start.options,
            assign=json.dumps({self.topic: list(range(count))}),
            failOnDataLoss="false",
            maxOffsetsPerTrigger=str(self.most),
        )
        try:
            loaded = reader.option("kafka.isolation.level", "read_committed").load()
        except (AnalysisException, IllegalArgumentException) as error:
            raise PropertiesError(self.brokers.without_values(str(error))) from None
        return loaded.select(*RECORD.fieldNames())

    def passed(self, read: CheckpointReader, batch: int, decoded: DataFrame) -> PassedOffsets:
        """Count the offsets from the checkpoint and the current log starts.

        If Kafka gives no answer, the number of lost offsets is 0.
        """
        ranges = ranges_of_batch(read, batch, self.topic)
        starts = self._starts(ranges)
        passed = sum(each.offsets(starts.get(partition, 0)) for partition, each in ranges.items())
        is_whole = all(starts.get(partition, 0) <= each.first <= each.until for partition, each in ranges.items())
        if is_whole:
            return PassedOffsets(passed, 0)
        rows = decoded.groupBy("log_partition").agg(F.min("log_offset").alias("first")).collect()
        first = {row.log_partition: row["first"] for row in rows}
        known = ((partition, ranges[partition], start) for partition, start in starts.items())
        return PassedOffsets(passed, sum(each.lost(start, first.get(number)) for number, each, start in known))

    def is_full(self, read: CheckpointReader, batch: int) -> bool:
        """Whether the batch has the maximum number of records, so that more records may wait."""
        ranges = ranges_of_batch(read, batch, self.topic).values()
        # Spark divides the limit among the partitions, and rounds each share down.
        return sum(max(0, each.until - each.first) for each in ranges) >= self.most - len(ranges)

    def _starts(self, ranges: Mapping[int, OffsetRange]) -> dict[int, int]:
        try:
            answers = self.kafka.log_starts([TopicPartition(self.topic, partition) for partition in ranges])
        except ClusterError:
            return {}
        return {at.partition: start for at, start in answers.items() if not isinstance(start, Failure)}


@dataclass(frozen=True, slots=True)
class RecordsFromParquet:
    """Reads Parquet files that another program put into a directory or its subdirectories."""

    directory: str
    may_repeat: bool = True

    def records(self, spark: SparkSession) -> DataFrame:
        """Return the stream of records. ``written_at`` is the time when the file was written. Raises `NoRecords`."""
        written_at = F.col("_metadata.file_modification_time").alias("written_at")
        return new_files(spark, self.directory, RECORD).select(*RECORD.fieldNames(), written_at)

    def passed(self, read: CheckpointReader, batch: int, decoded: DataFrame) -> None:  # noqa: ARG002 (files are in no order)
        """Return ``None``, because files do not show which offsets are missing."""
        return

    def is_full(self, read: CheckpointReader, batch: int) -> bool:  # noqa: ARG002 (the time comes from the records)
        """Return false, because each batch is judged at the time of its newest record."""
        return False


RecordSource = RecordsFromKafka | RecordsFromParquet
"""A source of records with the columns of `RECORD`.

``may_repeat`` says whether the source can return the same record twice for one checkpoint.
"""


def _require_connector(spark: SparkSession) -> None:
    """Raise `ConnectorMissing` if Spark cannot read or write Kafka."""
    java: Any = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr] # noqa: SLF001 (no other way to ask)
    try:
        java.Class.forName(_PROVIDER, True, java.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError as error:
        raise ConnectorMissing from error


def new_files(spark: SparkSession, directory: str, schema: StructType) -> DataFrame:
    """Return the rows of new Parquet files as a stream. Raises `NoRecords`, and Py4JJavaError for a wrong type."""
    place = place_for(spark, directory)
    if not exists(spark, place):
        raise NoRecords(f"{directory}: this directory does not exist")
    options = {"recursiveFileLookup": "true", "pathGlobFilter": "*.parquet"}
    try:
        found = spark.read.options(**options).parquet(literal(place)).schema
    except AnalysisException as error:
        raise NoRecords(f"{directory}: this directory has no Parquet file") from error
    except Py4JJavaError as error:
        raise NoRecords(f"{directory}: its files cannot be read as Parquet; see Spark's messages above") from error
    lacks = [name for name in schema.fieldNames() if name not in found.fieldNames()]
    if lacks:
        raise NoRecords(f"{directory}: its files lack {', '.join(lacks)}")
    # A wrong type of a column fails here, and not only in a batch.
    spark.read.schema(schema).options(**options).parquet(literal(place)).limit(1).toArrow()
    source = spark.readStream.schema(schema).options(**options, maxFileAge=ANY_AGE, maxBytesPerTrigger=str(BATCH_BYTES))
    return source.parquet(literal(place))


def ranges_of_batch(read: CheckpointReader, batch: int, topic: str) -> dict[int, OffsetRange]:
    """Return each partition's offset range in a batch. Raises FileNotFoundError if the checkpoint lacks the batch."""
    ends = _offsets(read, f"offsets/{batch}", topic)
    starts = _offsets(read, f"offsets/{batch - 1}" if batch else _INITIAL, topic)
    return {partition: OffsetRange(starts.get(partition, until), until) for partition, until in ends.items()}


def _offsets(read: CheckpointReader, name: str, topic: str) -> dict[int, int]:
    """Return the topic's offsets in a file of the checkpoint. The file has a line for each source of the query."""
    text = read(name)
    if text is None:
        raise FileNotFoundError(f"the checkpoint has no {name}")
    header = 1 if name == _INITIAL else 2
    sources = [json.loads(line) for line in text.splitlines()[header:] if line.startswith("{")]
    return {int(partition): offset for each in sources for partition, offset in each.get(topic, {}).items()}
