"""Makes rows of the table ``quarantine`` of lines, and of records of ``__consumer_offsets``, that could not be read."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from karrot.pipeline.schemas import QUARANTINE, RAW_BYTES, columns_of, with_day

FIRST_LINES: Final = StructType().add("source", StringType()).add("path", StringType()).add("first", LongType())
"""A segment, how Spark spells its path, and the number of its first line."""


def bad_lines(lines: DataFrame, segments: DataFrame) -> DataFrame:
    """The lines that have a reason. ``segments`` are of the schema `FIRST_LINES`."""
    return (
        lines.where(F.col("reason").isNotNull())
        .join(F.broadcast(segments), on="path", how="inner")
        .withColumns(
            {
                "position": F.coalesce("offset", F.col("number") - F.col("first") + F.lit(1)),
                "missing": F.lit(None).cast("bigint"),
            }
        )
        .select(*columns_of(with_day(QUARANTINE)))
    )


def bad_records(decoded: DataFrame) -> DataFrame:
    """The records that `decode_offsets` or `decode_members` could not read.

    ``source`` is ``<cluster>/__consumer_offsets-<partition>``, without what follows the name where the record has no
    partition, and ``position`` the offset there. ``raw`` is a JSON object of ``key`` and ``value`` in base64, the first
    64 KiB of each, ``null`` where there was none.
    """
    raw = F.struct(*(F.base64(F.substring(name, 1, RAW_BYTES)).alias(name) for name in ("key", "value")))
    return (
        decoded.where(~F.col("readable"))
        .withColumns(
            {
                "source": F.concat_ws(
                    "-", F.concat("cluster", F.lit("/__consumer_offsets")), F.col("log_partition").cast("string")
                ),
                "raw": F.to_json(raw, {"ignoreNullFields": "false"}),
                "position": F.col("log_offset"),
                "missing": F.lit(None).cast("bigint"),
                "day": F.to_date("log_ts"),
            }
        )
        .select(*columns_of(with_day(QUARANTINE)))
    )
