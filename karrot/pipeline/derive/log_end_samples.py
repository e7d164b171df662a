"""Collects samples of log end offsets, from polls of the brokers or from Burrow's verdicts.

Between two samples that are not too far apart the log end is interpolated: the log is taken to grow evenly. Before the
first sample and after the last it is not known.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.store.shared_columns import LOG

_BEHIND_MS: Final = 60_000
"""How old a view of the log end may be: Burrow's is up to one refresh old (10 s unless set otherwise)."""


def log_end_samples(ends: DataFrame, partitions: DataFrame, *, within: Sequence[str] = LOG) -> DataFrame:
    """``LOG``, ``day``, ``at_ms``, ``start_offset`` and ``end_offset`` of rows of ``ends`` and of ``partitions``.

    A partition that was polled on a day is not taken from events of that day. What a verdict tells may be a refresh
    old: an end below one that was told within the minute before is such an old view, and left out.
    """
    polled = ends.select(*LOG, "day", F.col("observed_at_ms").alias("at_ms"), "start_offset", "end_offset")
    told = partitions.select(
        *LOG,
        "day",
        F.unix_millis("observed_at").alias("at_ms"),
        F.lit(None).cast("bigint").alias("start_offset"),
        F.try_add("end_offset", "current_lag").alias("end_offset"),
    )
    both = polled.withColumn("polled", F.lit(True)).unionByName(told.withColumn("polled", F.lit(False)))
    of_day = Window.partitionBy(*LOG, "day")
    just_before = Window.partitionBy(*within).orderBy("at_ms").rangeBetween(-_BEHIND_MS, -1)
    return (
        both.where(F.col("end_offset").isNotNull() & F.col("at_ms").isNotNull())
        .withColumn("is_polled", F.bool_or("polled").over(of_day))
        .where(F.col("polled") | ~F.col("is_polled"))
        .groupBy(*LOG, "day", "at_ms")
        .agg(*(F.max(name).alias(name) for name in ("polled", "start_offset", "end_offset")))
        .withColumn("told", F.max("end_offset").over(just_before))
        .where(F.col("polled") | F.col("told").isNull() | (F.col("told") <= F.col("end_offset")))
        .drop("polled", "told")
    )


def sample_spans(seen: DataFrame, longest: timedelta, *, within: Sequence[str] = LOG) -> DataFrame:
    """Each look with the next one: ``within``, ``life``, ``at_ms``, ``end_offset``, ``next_ms`` and ``next_offset``.

    The next one is NULL if it came more than ``longest`` later, or if the log ended lower then: the topic was created
    again, which begins another ``life``.
    """
    in_time = Window.partitionBy(*within).orderBy("at_ms")
    fell = F.col("end_offset") < F.lag("end_offset").over(in_time)
    numbered = seen.withColumn("fell", F.coalesce(fell, F.lit(False))).withColumn(
        "life", F.count_if("fell").over(in_time)
    )
    in_life = Window.partitionBy(*within, "life").orderBy("at_ms")
    next_ms, next_offset = F.lead("at_ms").over(in_life), F.lead("end_offset").over(in_life)
    near = next_ms - F.col("at_ms") <= longest // timedelta(milliseconds=1)
    return numbered.select(
        *within,
        "life",
        "at_ms",
        "end_offset",
        F.when(near, next_ms).alias("next_ms"),
        F.when(near, next_offset).alias("next_offset"),
    )
