"""Kafka through Spark's own connector: how a topic is read and written, and what is wrong in one sentence."""

import json
from collections.abc import Collection
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from karrot.kafka.client_properties import PropertiesError
from karrot.pipeline.stream.kafka_connection import Brokers, StartingOffsets

_FORMAT: Final = "kafka"
_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_OLD_READER: Final = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"


class ConnectorMissing(RuntimeError):  # noqa: N818 (names the state of the machine)
    """Spark has no Kafka connector here; the text is a sentence with the option that brings it."""

    def __init__(self) -> None:
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
        super().__init__(
            f"Spark's Kafka connector is not among its jars: add --conf spark.jars.packages={package}, or its jars "
            "with --conf spark.jars=…"
        )


def require_connector(spark: SparkSession) -> None:
    """Raises `ConnectorMissing` where Spark cannot read or write Kafka."""
    java: Any = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr] # noqa: SLF001 (no other way to ask)
    try:
        java.Class.forName(_PROVIDER, True, java.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError as error:
        raise ConnectorMissing from error


def new_records(
    spark: SparkSession,
    brokers: Brokers,
    topic: str,
    partitions: Collection[int],
    *,
    start: StartingOffsets,
    most: int | None = None,
) -> DataFrame:
    """The records of a topic as a stream: ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``.

    What belongs to aborted transactions is left out, and what the broker no longer has is passed over. ``most`` bounds
    the records of a batch. No consumer group is joined: to join one writes into ``__consumer_offsets``, which may be
    the very topic that is read. Raises `ConnectorMissing` and `PropertiesError`.
    """
    require_connector(spark)
    # Spark's newer way to find offsets passes over internal topics: no rows at all, and no error.
    spark.conf.set(_OLD_READER, "true")
    options = {
        **brokers.options,
        **start.options,
        "assign": json.dumps({topic: sorted(partitions)}),
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "false",
        **({} if most is None else {"maxOffsetsPerTrigger": str(most)}),
    }
    return _loaded(brokers, spark.readStream.format(_FORMAT).options(**options)).select(
        "key", "value", "topic", "partition", "offset", "timestamp"
    )


def send(df: DataFrame, brokers: Brokers, topic: str) -> None:
    """Write ``key`` and ``value`` to a topic, at least once. Raises what Spark raises."""
    df.select("key", "value").write.format(_FORMAT).options(**brokers.options, topic=topic).save()


def _loaded(brokers: Brokers, reader: Any) -> DataFrame:
    try:
        loaded: DataFrame = reader.load()
    except (AnalysisException, IllegalArgumentException) as error:
        raise PropertiesError(brokers.without_values(str(error))) from None
    return loaded
