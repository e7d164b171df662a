"""Reads records of ``__consumer_offsets`` as a stream: from Kafka itself, or from Parquet files of the same columns.

A checkpoint says which offsets of a topic a batch of Spark's Kafka source has passed. The batch holds the records that
were still there. Some of the other offsets never had a record that one may read (markers and records of aborted
transactions), or lost it when a newer record took its place. What lies before the log's start was deleted, perhaps
before it was read.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from karrot.event import TopicPartition
from karrot.kafka.client_properties import PropertiesError
from karrot.pipeline.store.filesystem import exists, literal
from karrot.pipeline.stream.kafka_connection import KafkaConnection, StartingOffsets
from karrot.pipeline.stream.query_runner import ANY_AGE, BATCH_BYTES, CheckpointReader
from karrot.watch.cluster_interface import ClusterError, Failure

OFFSETS_TOPIC: Final = "__consumer_offsets"

_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_OLD_READER: Final = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
_INITIAL: Final = "sources/0/0"
"""The file of a checkpoint that holds the offsets at which the first batch began."""

BATCH_RECORDS: Final = 2_000_000
"""Records in a batch from Kafka: a few hundred bytes each while it is written."""

_READ_AS: Final[Mapping[type[DataType], tuple[type[DataType], ...]]] = {
    BinaryType: (StringType,),
    StringType: (BinaryType,),
    IntegerType: (ByteType, ShortType),
    LongType: (ByteType, ShortType, IntegerType),
    TimestampType: (TimestampNTZType,),
}
"""Other types that a column may be stored as: Spark reads them as the first."""

RECORD: Final = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
)
"""A record as Spark's Kafka source tells it."""


class NoRecords(LookupError):  # noqa: N818 (names what is so)
    """There is nothing to read where records should be; the message is a sentence."""


class ConnectorMissing(RuntimeError):  # noqa: N818 (names the state of the machine)
    """Spark has no Kafka connector here; the text is a sentence with the option that brings it."""

    def __init__(self) -> None:
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
        super().__init__(
            f"Spark's Kafka connector is not among its jars: add --conf spark.jars.packages={package}, or its jars "
            "with --conf spark.jars=…"
        )


class PassedOffsets(NamedTuple):
    """How many offsets a batch went past, and how many of them were deleted before they could be read."""

    offsets: int
    lost: int


class OffsetRange(NamedTuple):
    """From the offset ``first`` up to and without ``until``. If ``until`` is lower, the topic was created again."""

    first: int
    until: int

    def offsets(self, log_start: int) -> int:
        """How many offsets were passed; if the topic was created again, all that it has by now."""
        return self.until - (self.first if self.first <= self.until else min(log_start, self.until))

    def lost(self, log_start: int, first_read: int | None) -> int:
        """How many of them lie before the log's start and were not read before it moved."""
        if self.first > self.until:
            return self.offsets(log_start)
        before = min(log_start, self.until if first_read is None else first_read)
        return max(0, before - self.first)


class RecordSource(Protocol):
    """Where a job's records come from."""

    @property
    def may_repeat(self) -> bool:
        """Whether a record may come twice by one checkpoint."""

    def records(self, spark: SparkSession) -> DataFrame:
        """The stream, of the columns of `RECORD`. Raises `NoRecords`."""

    def passed(self, read: CheckpointReader, batch: int, decoded: DataFrame) -> PassedOffsets | None:
        """What a batch went past; ``None`` where that has no meaning."""


class TopicMetadata(Protocol):
    """What is asked of Kafka; every method may raise `karrot.watch.cluster_interface.ClusterError`."""

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        """How many partitions each of the topics has that there are."""

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """The offsets of the oldest records."""


@dataclass(frozen=True, slots=True)
class RecordsFromKafka:
    """From the topic itself, or a copy of it; from ``start`` on where there is no checkpoint yet."""

    brokers: KafkaConnection
    kafka: TopicMetadata
    start: StartingOffsets
    topic: str = OFFSETS_TOPIC
    most: int = BATCH_RECORDS
    may_repeat: bool = False

    def records(self, spark: SparkSession) -> DataFrame:
        """The stream, without what belongs to aborted transactions or is no longer there.

        No consumer group is joined: to join one writes into ``__consumer_offsets``, which may be the very topic that is
        read. Raises `NoRecords`, `ConnectorMissing` and `PropertiesError`.
        """
        count = self.kafka.partitions([self.topic]).get(self.topic)
        if not count:
            raise NoRecords(
                f"the cluster shows no {self.topic}: nobody has written to it yet, or this user may not describe it"
            )
        _require_connector(spark)
        # Spark's newer way to find offsets passes over internal topics: no rows at all, and no error.
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
        """By the checkpoint and where the logs start now; nothing is lost as far as Kafka does not say."""
        ranges = ranges_of_batch(read, batch, self.topic)
        starts = self._starts(ranges)
        passed = sum(each.offsets(starts.get(partition, 0)) for partition, each in ranges.items())
        is_whole = all(starts.get(partition, 0) <= each.first <= each.until for partition, each in ranges.items())
        if is_whole:
            return PassedOffsets(passed, 0)
        first = decoded.groupBy("log_partition").agg(F.min("log_offset").alias("first")).collect()
        return PassedOffsets(passed, lost_offsets(ranges, starts, {row.log_partition: row["first"] for row in first}))

    def _starts(self, ranges: Mapping[int, OffsetRange]) -> dict[int, int]:
        try:
            answers = self.kafka.log_starts([TopicPartition(self.topic, partition) for partition in ranges])
        except ClusterError:
            return {}
        return {at.partition: start for at, start in answers.items() if not isinstance(start, Failure)}


@dataclass(frozen=True, slots=True)
class RecordsFromParquet:
    """From files that somebody else put into a directory or below it."""

    directory: str
    may_repeat: bool = True

    def records(self, spark: SparkSession) -> DataFrame:
        """The stream of files, with when each was ``written_at``. Raises `NoRecords`."""
        written_at = F.col("_metadata.file_modification_time").alias("written_at")
        return new_files(spark, self.directory, RECORD).select(*RECORD.fieldNames(), written_at)

    def passed(self, read: CheckpointReader, batch: int, decoded: DataFrame) -> None:  # noqa: ARG002 (files are in no order)
        """Nothing: files do not say what is not in them."""
        return


def _require_connector(spark: SparkSession) -> None:
    """Raises `ConnectorMissing` where Spark cannot read or write Kafka."""
    java: Any = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr] # noqa: SLF001 (no other way to ask)
    try:
        java.Class.forName(_PROVIDER, True, java.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError as error:
        raise ConnectorMissing from error


def new_files(spark: SparkSession, directory: str, schema: StructType) -> DataFrame:
    """The rows of new Parquet files as a stream. Raises `NoRecords` if there are none, or they have other columns."""
    if not exists(spark, directory):
        raise NoRecords(f"{directory}: there is no such directory")
    options = {"recursiveFileLookup": "true", "pathGlobFilter": "*.parquet"}
    try:
        found = spark.read.options(**options).parquet(literal(directory)).schema
    except AnalysisException as error:
        raise NoRecords(f"{directory}: there is no Parquet file") from error
    except Py4JJavaError as error:
        raise NoRecords(f"{directory}: its files cannot be read as Parquet; Spark says above which and why") from error
    lacks = [name for name in schema.fieldNames() if name not in found.fieldNames()]
    if lacks:
        raise NoRecords(f"{directory}: its files lack {', '.join(lacks)}")
    if wrong := [told for each in schema for told in _of_another_type(each.name, each.dataType, found)]:
        raise NoRecords(f"{directory}: in its files {', '.join(wrong)}")
    source = spark.readStream.schema(schema).options(**options, maxFileAge=ANY_AGE, maxBytesPerTrigger=str(BATCH_BYTES))
    return source.parquet(literal(directory))


def _of_another_type(name: str, wanted: DataType, found: StructType) -> Iterator[str]:
    """What is wrong with a column: Spark would say it in the midst of a batch, and at length."""
    stored = found[name].dataType
    if not isinstance(stored, (type(wanted), *_READ_AS[type(wanted)])):
        yield f"{name} is {stored.simpleString()} and must be {wanted.simpleString()}"


def ranges_of_batch(read: CheckpointReader, batch: int, topic: str) -> dict[int, OffsetRange]:
    """The range of each partition. Raises FileNotFoundError for a batch that the checkpoint does not know."""
    ends = _offsets(read, f"offsets/{batch}", topic)
    starts = _offsets(read, f"offsets/{batch - 1}" if batch else _INITIAL, topic)
    return {partition: OffsetRange(starts.get(partition, until), until) for partition, until in ends.items()}


def lost_offsets(
    ranges: Mapping[int, OffsetRange], log_starts: Mapping[int, int], first_read: Mapping[int, int]
) -> int:
    """How many offsets of a batch were deleted before they were read; none of a partition whose start is not known."""
    return sum(
        ranges[partition].lost(start, first_read.get(partition))
        for partition, start in log_starts.items()
        if partition in ranges
    )


def _offsets(read: CheckpointReader, name: str, topic: str) -> dict[int, int]:
    text = read(name)
    if text is None:
        raise FileNotFoundError(f"the checkpoint has no {name}")
    told = json.loads(text.splitlines()[-1])
    return {int(partition): offset for partition, offset in told.get(topic, {}).items()}
