"""Records that the tables hold already: another checkpoint wrote them, or a file came twice."""

from collections.abc import Callable, Collection
from datetime import date
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.schemas import STREAMED
from karrot.pipeline.store.filesystem import listing, literal
from karrot.pipeline.store.tables import Tables

AT: Final = ("log_partition", "log_offset")
"""Where a record lies in ``__consumer_offsets``."""


def landed(
    spark: SparkSession, tables: Tables, cluster: str, days: Collection[date], counts: Callable[[str], bool]
) -> DataFrame | None:
    """Where the records lie that these days have of a cluster, in the batches that count; ``None`` if there is none."""
    places = {
        "commits": (F.col("cluster") == cluster, F.col("log_partition")),
        "members": (F.col("cluster") == cluster, F.col("log_partition")),
        "quarantine": _quarantined(cluster),
    }
    found = [
        spark.read.schema(STREAMED[name])
        .parquet(*map(literal, paths))
        .where(is_of)
        .select(partition.alias("log_partition"), _offset(name).alias("log_offset"))
        for name, (is_of, partition) in places.items()
        if (paths := _batches(spark, tables, name, days, counts))
    ]
    return reduce(DataFrame.unionByName, found).distinct() if found else None


def _batches(
    spark: SparkSession, tables: Tables, name: str, days: Collection[date], counts: Callable[[str], bool]
) -> list[str]:
    """The directories; a day's are listed by one call, however many they are."""
    return [
        tables.path(name, f"day={day}", entry)
        for day in sorted(days)
        for entry in listing(spark, tables.path(name, f"day={day}"))
        if entry.startswith("batch_id=") and counts(entry.removeprefix("batch_id="))
    ]


def _quarantined(cluster: str) -> tuple[Column, Column]:
    source, before = F.col("source"), f"{cluster}/__consumer_offsets-"
    return F.startswith(source, F.lit(before)), F.substr(source, F.lit(len(before) + 1)).try_cast("int")


def _offset(name: str) -> Column:
    return F.col("position" if name == "quarantine" else "log_offset")
