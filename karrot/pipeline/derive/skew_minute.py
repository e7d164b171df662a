"""Derives the table ``skew_minute``: how unevenly a topic's lag is distributed, and the likely cause."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from karrot.pipeline.schemas_and_conversions import GROUP, SKEW_MINUTE, columns_of, rounded

_TOPIC = (*GROUP, "topic", "minute")
_TOPIC_KEY = ("key", "group", *_TOPIC)
_STANDS_OUT = 2.0
_NEARLY_ALL = 0.8


def skew_minute(listings: DataFrame, *, of: str | None = None) -> DataFrame:
    """Make ``skew_minute`` from ``listings``, the rows of events that list every partition of their group.

    The lag of a partition is its mean over the minute. ``coverage`` is the share of the topic's partitions whose lag is
    known. A minute with a coverage below 1 has no row. Without lag, the worst partition and the largest share are NULL.

    ``of`` names a column with the topic's number of partitions, if the rows have such a column. Then coverage is a
    share of that number, and a minute has a row if at least one partition's lag is known. The shares are then
    computed from the known lags only.

    ``cause`` is set if the worst partition has more than twice its fair share, and its owner has other partitions to
    compare with: ``hot_partition`` if the owner keeps up with them, ``slow_owner`` if they lag too.
    """
    in_minutes = listings.withColumn("minute", F.date_trunc("minute", "received_at"))
    # Sorts compare hashes of what the aggregates group by, instead of names.
    keys = {"key": F.xxhash64(*_TOPIC), "partition_key": F.xxhash64(*_TOPIC, "partition")}
    per_partition = (
        in_minutes.withColumns(keys)
        .groupBy("partition_key", *_TOPIC_KEY, "partition")
        .agg(
            F.avg("current_lag").alias("lag"),
            F.max_by("owner", F.struct("received_at", "seq")).alias("owner"),
            (F.lit(None) if of is None else F.max(of)).cast("bigint").alias("of"),
        )
    )
    one = F.when(F.col("lag").isNotNull(), F.struct("lag", "partition", "owner"))
    per_topic = per_partition.groupBy(*_TOPIC_KEY).agg(
        F.sum("lag").alias("total"),
        (F.count("lag") / F.coalesce(F.max("of"), F.count(F.lit(1)))).alias("coverage"),
        F.array_sort(F.collect_list(one)).alias("by_lag"),
    )
    worst = F.try_element_at("by_lag", F.lit(-1))
    enough = F.col("coverage") == 1 if of is None else F.col("coverage") > 0
    whole = per_topic.where(enough).select("*", worst.alias("worst"), F.size("by_lag").alias("partitions"))
    return whole.select(*_TOPIC, "coverage", *_judged()).select(
        *columns_of(SKEW_MINUTE), F.to_date("minute").alias("day")
    )


def _judged() -> list[Column]:
    lagging = F.col("total") > 0
    worst, theirs = F.col("worst"), F.filter("by_lag", lambda one: one.owner == F.col("worst.owner"))
    owner_share = F.try_divide(_sum_of(F.transform(theirs, lambda one: one.lag)), F.col("total"))
    max_share = F.try_divide(worst.lag, F.col("total"))
    stands_out = max_share * F.col("partitions") > _STANDS_OUT
    alone = max_share >= _NEARLY_ALL * owner_share
    # 2 * sum(rank * lag) / (n * total) - (n + 1) / n over the lags in order, rank from 1.
    ranked, n = F.transform("by_lag", lambda one, index: one.lag * (index + 1)), F.col("partitions")
    gini = F.try_divide(2 * _sum_of(ranked), n * F.col("total")) - (n + 1) / n
    cause = F.when(alone, "hot_partition").otherwise("slow_owner")
    return [
        F.when(lagging, rounded(max_share, 6)).alias("max_share"),
        rounded(F.when(lagging, gini).otherwise(0.0), 6).alias("gini"),
        F.when(lagging, worst.partition).alias("worst_partition"),
        F.when(lagging, worst.owner).alias("owner"),
        F.when(lagging & worst.owner.isNotNull(), rounded(owner_share, 6)).alias("owner_share"),
        F.when(lagging & stands_out & (F.size(theirs) > 1), cause).alias("cause"),
    ]


def _sum_of(numbers: Column) -> Column:
    return F.aggregate(numbers, F.lit(0.0), lambda total, one: total + one)
