"""Reduces a batch of ``commits`` and ``ends`` to the rows that `karrot.pipeline.stale.stale_rule` reads."""

from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.store.shared_columns import LOG, PARTITION

RECORD: Final = (*PARTITION, "offset", "at_ms", "log_offset")
"""The columns of both kinds of rows in one stream: a look has no ``consumer`` and no ``log_offset``."""


def of_commits(commits: DataFrame) -> DataFrame:
    """Rows of ``commits`` as `RECORD`: a tombstone has no ``offset``."""
    offset = F.when(~F.col("tombstone"), F.col("offset"))
    return commits.select(*PARTITION, offset.alias("offset"), F.col("log_ts_ms").alias("at_ms"), "log_offset")


def of_ends(ends: DataFrame) -> DataFrame:
    """Rows of ``ends`` as `RECORD`."""
    nobody, nowhere = F.lit(None).cast("string").alias("consumer"), F.lit(None).cast("bigint").alias("log_offset")
    end, at_ms = F.col("end_offset").alias("offset"), F.col("observed_at_ms").alias("at_ms")
    return ends.select("cluster", nobody, "topic", "partition", end, at_ms, nowhere)


def newest_commits(records: DataFrame) -> DataFrame:
    """A row per partition of a group: its newest record, the first in a row that says the same, and the one before."""
    in_log = Window.partitionBy(*PARTITION).orderBy("at_ms", "log_offset")
    place = F.struct("at_ms", "log_offset")
    before = F.lag(place).over(in_log)
    begins = before.isNull() | ~F.col("offset").eqNullSafe(F.lag("offset").over(in_log))
    run = F.when(begins, F.struct(place.alias("first"), before.alias("before")))
    newest = F.struct(place.alias("newest"), "offset")
    committed = records.where(F.col("consumer").isNotNull() & F.col("at_ms").isNotNull())
    per_partition = committed.withColumn("run", run).groupBy(*PARTITION)
    told = per_partition.agg(F.max(newest).alias("newest"), F.max("run").alias("run"))
    return told.select(*PARTITION, "newest.offset", "newest.newest", "run.first", "run.before")


def newest_looks(records: DataFrame, length: timedelta) -> DataFrame:
    """The looks at each log that are less than ``length`` older than its newest one, and the newest before these."""
    of_log = Window.partitionBy(*LOG)
    since = F.max("at_ms").over(of_log) - length // timedelta(milliseconds=1)
    looks = records.where(F.col("consumer").isNull() & F.col("offset").isNotNull()).withColumn("since", since)
    first = F.max(F.when(F.col("at_ms") <= F.col("since"), F.col("at_ms"))).over(of_log)
    needed = looks.withColumn("first", F.coalesce(first, F.lit(0))).where(F.col("at_ms") >= F.col("first"))
    return needed.select(*LOG, "at_ms", F.col("offset").alias("end"))
