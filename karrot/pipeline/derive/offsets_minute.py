"""Derives the table ``offsets_minute``: each group's first and last offset, count and sum of commits in a minute."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from karrot.pipeline.schemas_and_conversions import OFFSETS_MINUTE, PARTITION, columns_of


def offsets_minute(commits: DataFrame) -> DataFrame:
    """Make ``offsets_minute`` from ``commits``, which hold each record once.

    A commit belongs to the minute of its record. A tombstone does not count as a commit. "First" and "last" mean the
    order in the log, because the clock of a client may be wrong.
    """
    offset, place = F.col("offset"), F.col("log_offset")
    return (
        commits.where(~F.col("tombstone"))
        .groupBy(*PARTITION, F.date_trunc("minute", "log_ts").alias("minute"))
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.try_sum(offset).alias("offset_sum"),
            F.min_by(offset, place).alias("offset_first"),
            F.max_by(offset, place).alias("offset_last"),
        )
        .select(*columns_of(OFFSETS_MINUTE), F.to_date("minute").alias("day"))
    )
