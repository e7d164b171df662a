"""Where records of ``__consumer_offsets`` come from: Kafka itself, or Parquet files of the same columns.

Both are streams, so that a checkpoint tells what was taken.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
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
from karrot.pipeline.store.filesystem import exists, literal
from karrot.pipeline.stream.checkpoints import Read
from karrot.pipeline.stream.kafka_connection import Brokers, StartingOffsets
from karrot.pipeline.stream.kafka_topics import new_records
from karrot.pipeline.stream.offset_ranges import Range, lost, ranges_of_batch
from karrot.pipeline.stream.streaming_query import BATCH_BYTES, EVER
from karrot.watch.kafka_protocol import ClusterError, Failure

OFFSETS_TOPIC: Final = "__consumer_offsets"

BATCH_RECORDS: Final = 2_000_000
"""Records in a batch from Kafka: a few hundred bytes each while it is written."""

_READ_AS: Final[Mapping[type[DataType], tuple[type[DataType], ...]]] = {
    BinaryType: (StringType,),
    StringType: (BinaryType,),
    IntegerType: (ByteType, ShortType),
    LongType: (ByteType, ShortType, IntegerType),
    TimestampType: (TimestampNTZType,),
}
"""As what a column may be stored besides: Spark reads the second as the first."""

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


class Passed(NamedTuple):
    """How many offsets a batch went past, and how many of them were deleted before they could be read."""

    offsets: int
    lost: int


class RecordSource(Protocol):
    """A road by which records come."""

    @property
    def may_repeat(self) -> bool:
        """Whether a record may come twice by one checkpoint."""

    def records(self, spark: SparkSession) -> DataFrame:
        """The stream, of the columns of `RECORD`. Raises `NoRecords`."""

    def passed(self, read: Read, batch: int, decoded: DataFrame) -> Passed | None:
        """What a batch went past; ``None`` where that has no meaning."""


class Partitioned(Protocol):
    """What is asked of Kafka; every method may raise `karrot.watch.kafka_protocol.ClusterError`."""

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        """How many partitions each of the topics has that there are."""

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """The offsets of the oldest records."""


@dataclass(frozen=True, slots=True)
class FromKafka:
    """From the topic itself, or a copy of it; from ``start`` on where there is no checkpoint yet."""

    brokers: Brokers
    kafka: Partitioned
    start: StartingOffsets
    topic: str = OFFSETS_TOPIC
    most: int = BATCH_RECORDS
    may_repeat: bool = False

    def records(self, spark: SparkSession) -> DataFrame:
        """The stream. Raises `NoRecords`, `ConnectorMissing` and `PropertiesError`."""
        count = self.kafka.partitions([self.topic]).get(self.topic)
        if not count:
            raise NoRecords(
                f"the cluster shows no {self.topic}: nobody has written to it yet, or this user may not describe it"
            )
        partitions = range(count)
        return new_records(spark, self.brokers, self.topic, partitions, start=self.start, most=self.most)

    def passed(self, read: Read, batch: int, decoded: DataFrame) -> Passed:
        """By the checkpoint and where the logs start now; nothing is lost as far as Kafka does not say."""
        ranges = ranges_of_batch(read, batch, self.topic)
        starts = self._starts(ranges)
        passed = sum(each.offsets(starts.get(partition, 0)) for partition, each in ranges.items())
        is_whole = all(starts.get(partition, 0) <= each.first <= each.until for partition, each in ranges.items())
        return Passed(passed, 0 if is_whole else lost(ranges, starts, _first_read(decoded)))

    def _starts(self, ranges: Mapping[int, Range]) -> dict[int, int]:
        try:
            answers = self.kafka.log_starts([TopicPartition(self.topic, partition) for partition in ranges])
        except ClusterError:
            return {}
        return {at.partition: start for at, start in answers.items() if not isinstance(start, Failure)}


@dataclass(frozen=True, slots=True)
class FromParquet:
    """From files that somebody else put into a directory or below it."""

    directory: str
    may_repeat: bool = True

    def records(self, spark: SparkSession) -> DataFrame:
        """The stream of files, with when each was ``written_at``. Raises `NoRecords`."""
        written_at = F.col("_metadata.file_modification_time").alias("written_at")
        return new_files(spark, self.directory, RECORD).select(*RECORD.fieldNames(), written_at)

    def passed(self, read: Read, batch: int, decoded: DataFrame) -> None:  # noqa: ARG002 (files are in no order)
        """Nothing: files do not say what is not in them."""
        return


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
    source = spark.readStream.schema(schema).options(**options, maxFileAge=EVER, maxBytesPerTrigger=str(BATCH_BYTES))
    return source.parquet(literal(directory))


def _of_another_type(name: str, wanted: DataType, found: StructType) -> Iterator[str]:
    """What is wrong with a column: Spark would say it in the midst of a batch, and at length."""
    stored = found[name].dataType
    if not isinstance(stored, (type(wanted), *_READ_AS[type(wanted)])):
        yield f"{name} is {stored.simpleString()} and must be {wanted.simpleString()}"


def _first_read(decoded: DataFrame) -> dict[int, int]:
    first = decoded.groupBy("log_partition").agg(F.min("log_offset").alias("first")).collect()
    return {row.log_partition: row["first"] for row in first}
