"""Computes lag, rates and skew from commits for groups whose partitions no event lists in full.

A group has its lag, rates and skew of a day from events that list all its partitions, if there are any on that day.
Otherwise it has them from ``partition_lag_minute``, and never from both.
"""

from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.schemas import LAG_MINUTE, columns_of
from karrot.pipeline.store.shared_columns import GROUP, LOG, PARTITION

_GROUP_DAY: Final = (*GROUP, "day")
_MINUTE: Final = timedelta(minutes=1)
_MOST: Final = 0.5
_OF_LAG: Final = ("lag_min", "lag_max", "lag_avg", "lag_last", "lag_seconds_max")


def unheard(lags: DataFrame, listings: DataFrame) -> DataFrame:
    """The rows of ``partition_lag_minute`` for groups and days without any whole listing in ``listings``."""
    return lags.join(listings.select(*_GROUP_DAY).distinct(), on=list(_GROUP_DAY), how="left_anti").select(
        *lags.columns
    )


def as_listings(lags: DataFrame) -> DataFrame:
    """``partition_lag_minute`` as looks for `rates_minute`; a commit beyond the log end says nothing of its growth."""
    known = lags.where(F.col("lag").isNotNull() & (F.col("negative") == 0))
    return known.select(
        *PARTITION,
        F.col("as_of").alias("received_at"),
        F.lit(0).cast("bigint").alias("seq"),
        F.col("committed_offset").alias("end_offset"),
        F.col("lag").alias("current_lag"),
        "day",
    )


def filled(lags: DataFrame, seen: DataFrame, longest: timedelta) -> DataFrame:
    """``lags`` with rows for the minutes in which the group has others and this partition none.

    What was known of a partition holds until its next row, for ``longest`` at most, and not beyond midnight. Adds
    ``partitions``: how many of the topic hold messages or were committed that day. ``seen`` are
    `karrot.pipeline.derive.lag_seconds.log_end_samples`.
    """
    next_minute = F.lead("minute").over(Window.partitionBy(*PARTITION, "day").orderBy("minute"))
    taken_back = F.col("committed_offset").isNull()
    holds = F.when(taken_back, F.lit(_MINUTE)).otherwise(F.lit(longest))
    midnight = F.date_add("day", 1).cast("timestamp")
    until = F.least(next_minute, F.col("minute") + holds, midnight)
    minutes = F.sequence(F.col("minute"), F.col("until") - F.lit(_MINUTE), F.lit(_MINUTE))
    held = lags.withColumn("until", until).withColumn("told", F.explode(minutes))
    is_own = F.bool_or(F.col("told") == F.col("minute")).over(Window.partitionBy(*GROUP, "told"))
    own = held.withColumn("is_own", is_own).where("is_own")
    return own.join(_sizes(lags, seen), on=[*_GROUP_DAY, "topic"]).select(
        *PARTITION,
        "day",
        F.col("told").alias("minute"),
        "committed_offset",
        "lag",
        "lag_seconds",
        "owner",
        "partitions",
    )


def _sizes(lags: DataFrame, seen: DataFrame) -> DataFrame:
    """How many ``partitions`` a topic of a group has; one that is empty and was never committed lacks nothing."""
    of_group = lags.select(*_GROUP_DAY, "topic", "partition").distinct()
    begins = F.coalesce("start_offset", F.lit(0))
    holding = seen.where(F.col("end_offset") > begins).select(*LOG, "day").distinct()
    beside = of_group.drop("partition").distinct().join(holding, on=["cluster", "topic", "day"])
    both = of_group.unionByName(beside).distinct()
    return both.groupBy(*_GROUP_DAY, "topic").agg(F.count(F.lit(1)).alias("partitions"))


def spread(rows: DataFrame) -> DataFrame:
    """`filled` rows as `karrot.pipeline.derive.skew_minute.skew_minute` takes listings, with their ``partitions``."""
    now = {"received_at": F.col("minute"), "seq": F.lit(0), "current_lag": F.col("lag")}
    return rows.withColumns(now)


def group_lags(rows: DataFrame) -> DataFrame:
    """Rows of ``lag_minute`` without events, of `filled` ones, and ``is_whole``: no committed partition lacks a lag."""
    topics = rows.select(*_GROUP_DAY, "topic", "partitions").distinct()
    whole = topics.groupBy(*_GROUP_DAY).agg(F.sum("partitions").alias("partitions"))
    lag = F.try_sum("lag")
    told = rows.groupBy(*_GROUP_DAY, "minute").agg(
        lag.alias("lag_min"),
        lag.alias("lag_max"),
        lag.cast("double").alias("lag_avg"),
        lag.alias("lag_last"),
        F.max("lag_seconds").alias("lag_seconds_max"),
        F.count("lag").alias("known"),
        F.count("committed_offset").alias("committed"),
    )
    return (
        told.join(whole, on=list(_GROUP_DAY))
        .select(
            "*",
            F.lit(0).cast("bigint").alias("count"),
            F.lit(None).cast("string").alias("worst_status"),
            F.lit(0).cast("bigint").alias("not_ok"),
            (F.col("known") / F.col("partitions")).alias("coverage"),
            (F.col("partitions") - F.col("committed")).alias("uncommitted"),
        )
        .select(*columns_of(LAG_MINUTE), "day", (F.col("known") == F.col("committed")).alias("is_whole"))
    )


def merged(of_events: DataFrame, of_commits: DataFrame) -> DataFrame:
    """``lag_minute`` of both: verdicts are of events, lag is of `group_lags` unless events know it better.

    They do where they tell of a group on a day on which its commits do not know the whole lag in most minutes: without
    polls of the log ends these are known as far as verdicts list partitions.
    """
    told = _telling(of_events, of_commits)
    measured = told.select(*_GROUP_DAY).distinct().withColumn("is_measured", F.lit(True))
    heard = of_events.join(measured, on=list(_GROUP_DAY), how="left")
    lagless = heard.select(
        *(
            F.when(F.col("is_measured").isNull(), F.col(name)).alias(name) if name in _OF_LAG else F.col(name)
            for name in of_events.columns
        )
    )
    added = ("count", "not_ok")
    either = (name for name in columns_of(LAG_MINUTE) if name not in (*GROUP, "minute", *added))
    return (
        lagless.unionByName(told)
        .groupBy(*_GROUP_DAY, "minute")
        .agg(*(F.sum(name).alias(name) for name in added), *(F.max(name).alias(name) for name in either))
        .select(*columns_of(LAG_MINUTE), "day")
    )


def _telling(of_events: DataFrame, of_commits: DataFrame) -> DataFrame:
    """The groups and days of ``of_commits`` whose lag they tell."""
    mostly = F.avg(F.col("is_whole").cast("double")).over(Window.partitionBy(*_GROUP_DAY)) > _MOST
    heard = of_events.select(*_GROUP_DAY).distinct().withColumn("is_heard", F.lit(True))
    judged = of_commits.withColumn("mostly", mostly).join(heard, on=list(_GROUP_DAY), how="left")
    return judged.where(F.col("mostly") | F.col("is_heard").isNull()).drop("mostly", "is_heard", "is_whole")
