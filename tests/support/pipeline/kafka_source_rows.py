"""Makes frames with the columns of Spark's Kafka source from keys and values."""

from collections.abc import Iterable
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

LOG_TS = datetime(2025, 5, 11, 8, 0, 0, 123_000, tzinfo=UTC)
LOG_TS_MS = 1_746_950_400_123
Record = tuple[bytes | None, bytes | None]
"""Key and value."""

KAFKA_SOURCE_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


def records_table(told: Iterable[Record], first: int = 0) -> pa.Table:
    """Make records of partition 3 with one timestamp; offsets count from ``first``."""
    rows = [
        {"key": key, "value": value, "topic": "__consumer_offsets", "partition": 3, "offset": at, "timestamp": LOG_TS}
        for at, (key, value) in enumerate(told, first)
    ]
    return pa.Table.from_pylist(rows, schema=KAFKA_SOURCE_SCHEMA)


def records_frame(spark: SparkSession, told: Iterable[Record], first: int = 0) -> DataFrame:
    """Make the same records as a Spark frame."""
    return spark.createDataFrame(records_table(told, first))
