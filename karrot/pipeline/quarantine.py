"""What could not be read: lines, and segments that came up short."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.schemas import QUARANTINE, columns_of, with_day
from karrot.pipeline.segments import Segment

__all__ = ["SHORT", "bad_lines", "short_segments"]

SHORT: Final = "short_segment"
"""The reason of a row that counts what a segment lacks."""


def bad_lines(lines: DataFrame, segments: DataFrame) -> DataFrame:
    """The lines that have a reason. ``segments``: ``path``, ``source``, and the ``first`` number of each."""
    return (
        lines.where(F.col("reason").isNotNull())
        .join(F.broadcast(segments), on="path", how="inner")
        .withColumns(
            {
                "position": F.col("number") - F.col("first") + F.lit(1),
                "missing": F.lit(None).cast("bigint"),
            }
        )
        .select(*columns_of(with_day(QUARANTINE)))
    )


def short_segments(spark: SparkSession, missing: Mapping[Segment, int]) -> DataFrame:
    """One row per segment that lacks lines, on the day that it was written."""
    rows = [(segment.path, SHORT, None, None, count, segment.written_on) for segment, count in sorted(missing.items())]
    return spark.createDataFrame(rows, with_day(QUARANTINE))
