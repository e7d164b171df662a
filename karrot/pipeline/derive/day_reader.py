"""The streamed tables as derive reads them: whole days, no event twice.

The archive is at least once, but mostly once: where no two batches overlap in sequence numbers (a batch holds none
twice), nothing needs to be sorted out, which would shuffle every row.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from karrot.pipeline.schemas import UNIQUE_BY
from karrot.pipeline.store.changed_days import SOURCES
from karrot.pipeline.store.tables import Tables

_DAY = timedelta(days=1)


class Edges(NamedTuple):
    """How many looks at partitions a day has next to its two midnights."""

    head: int = 0
    tail: int = 0


@dataclass(frozen=True, slots=True)
class Sources:
    """``events`` and ``partitions``; ``edges`` are those of the days looked over."""

    spark: SparkSession
    tables: Tables
    repeating: frozenset[str]
    edges: Mapping[date, Edges]

    def read(self, name: str, days: Collection[date]) -> DataFrame:
        """Whole days of a table, no event twice."""
        rows = self.tables.read(self.spark, name, days=days)
        return rows.dropDuplicates(UNIQUE_BY[name]) if name in self.repeating else rows


def look_over(spark: SparkSession, tables: Tables, days: Collection[date], margin: timedelta) -> Sources:
    """The sources of these days, after one look at their sequence numbers; an edge is ``margin`` wide."""
    seen = reduce(
        DataFrame.unionByName,
        (_numbered(tables.read(spark, name, days=days, batches=True), name, margin) for name in SOURCES),
    )
    earlier = Window.partitionBy("table", "log_id").orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    spans = seen.groupBy("table", "day", "log_id", "batch_id").agg(
        F.min("seq").alias("first"),
        F.max("seq").alias("last"),
        F.count_if("head").alias("head"),
        F.count_if("tail").alias("tail"),
    )
    told = (
        spans.withColumn("overlaps", F.col("first") <= F.max("last").over(earlier))
        .groupBy("table", "day")
        .agg(F.bool_or("overlaps").alias("repeats"), F.sum("head").alias("head"), F.sum("tail").alias("tail"))
        .collect()
    )
    edges = {row.day: Edges(row.head, row.tail) for row in told if row.table == "partitions"}
    return Sources(spark, tables, frozenset(row.table for row in told if row.repeats), edges)


def no_record_twice(commits: DataFrame) -> DataFrame:
    """Commits, read with their ``batch_id``, each record once: sorted out only where batches overlap in offsets."""
    log = ("cluster", "log_partition")
    earlier = Window.partitionBy(*log).orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    batches = commits.groupBy(*log, "batch_id").agg(
        F.min("log_offset").alias("first"), F.max("log_offset").alias("last"), F.count(F.lit(1)).alias("rows")
    )
    overlaps = F.col("first") <= F.max("last").over(earlier)
    too_many = F.col("rows") > F.col("last") - F.col("first") + 1
    several = batches.select((overlaps | too_many).alias("several")).where("several").limit(1).collect()
    return commits.dropDuplicates(UNIQUE_BY["commits"]) if several else commits


def _numbered(rows: DataFrame, name: str, margin: timedelta) -> DataFrame:
    return rows.select(F.lit(name).alias("table"), "day", "log_id", "batch_id", "seq", *_beside_midnight(margin))


def _beside_midnight(margin: timedelta) -> list[Column]:
    at, midnight = F.col("received_at"), F.col("day").cast("timestamp")
    return [
        (at < midnight + F.lit(margin)).alias("head"),
        (at >= midnight + F.lit(_DAY - margin)).alias("tail"),
    ]
