"""Events that are there already: the archive and a second run of ingest are both at least once."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["repeats", "without"]

_ID = ("log_id", "seq")


def repeats(lines: DataFrame, known: DataFrame) -> DataFrame:
    """The ``number`` of each good line whose event came before: earlier in the batch, or in ``known``.

    An event's id is its log's id and its number in that log; ``known`` has both (the table ``events``).
    """
    arrived = lines.where(F.col("reason").isNull()).select("line.log_id", "line.seq", "number")
    stored = known.select(*_ID, F.lit(-1).cast("bigint").alias("number"))
    met = arrived.unionByName(stored).groupBy(*_ID).agg(F.min("number").alias("kept"), F.count("*").alias("times"))
    several = met.where(F.col("times") > 1).drop("times")
    return arrived.join(several, on=list(_ID), how="inner").where(F.col("number") > F.col("kept")).select("number")


def without(lines: DataFrame, numbers: DataFrame) -> DataFrame:
    """The lines but for those with these numbers."""
    return lines.join(numbers, on="number", how="left_anti")
