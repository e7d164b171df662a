"""Derives the table ``lag_minute``: the lag of each group, minute by minute, from events or from commits.

Each group has one source per day. If an event of that day lists all partitions of the group, lag, rates and skew come
from the events. Otherwise they come from ``partition_lag_minute``.
"""

from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.event import LEFT, AgeKind, Status
from karrot.pipeline.derive.status_intervals import severity, status_named
from karrot.pipeline.schemas_and_conversions import GROUP, LAG_MINUTE, PARTITION, columns_of

_SEQ_BITS = 47
_KINDS: Final = tuple(kind.name.lower() for kind in AgeKind)
"""How exactly a lag in seconds is known, the least exact kind last."""


def lag_minute(events: DataFrame) -> DataFrame:
    """Make ``lag_minute`` from ``events``, which hold each event once.

    An event belongs to the minute in which it was received. Unknown lags are left out, so ``lag_last`` is the last
    known lag. ``not_ok`` counts the events worse than OK.
    """
    lag = F.col("total_lag")
    worst = F.max(severity("status"))
    kind = F.array_position(F.array(*map(F.lit, _KINDS)), F.col("lag_seconds_kind")).cast("int") - 1
    # The millisecond and the sequence number, packed into one long. With a struct, Spark would use a sort instead of a
    # hash aggregate.
    milliseconds, seq = F.pmod(F.col("received_at_ms"), F.lit(60_000)), F.col("seq")
    minute = F.timestamp_millis(F.col("received_at_ms") - milliseconds)  # `date_trunc` makes Java objects for each row
    place = F.shiftleft(milliseconds, _SEQ_BITS).bitwiseOR(seq.bitwiseAND(F.lit((1 << _SEQ_BITS) - 1)))
    return (
        events.groupBy(*GROUP, minute.alias("minute"))
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.min(lag).alias("lag_min"),
            F.max(lag).alias("lag_max"),
            F.avg(lag).alias("lag_avg"),
            F.max_by(lag, F.when(lag.isNotNull(), place)).alias("lag_last"),
            F.max("lag_seconds").alias("lag_seconds_max"),
            status_named(worst).alias("worst_status"),
            F.count_if(severity("status") > Status.OK).alias("not_ok"),
            F.lit(None).cast("double").alias("coverage"),
            F.lit(None).cast("bigint").alias("uncommitted"),
            F.min("complete").alias("complete"),
            F.max(F.when(F.col("lag_seconds").isNotNull(), kind)).alias("kind"),
        )
        .withColumn("lag_seconds_kind", F.get(F.array(*map(F.lit, _KINDS)), F.col("kind")))
        .select(*columns_of(LAG_MINUTE), F.to_date("minute").alias("day"))
    )


_GROUP_DAY: Final = (*GROUP, "day")
_MINUTE: Final = timedelta(minutes=1)
_MOST: Final = 0.5
_OF_LAG: Final = ("lag_min", "lag_max", "lag_avg", "lag_last", "lag_seconds_max", "complete", "lag_seconds_kind")


def unheard(lags: DataFrame, listings: DataFrame) -> DataFrame:
    """Keep the rows of ``partition_lag_minute`` for groups and days that have no row in ``listings``."""
    heard = F.broadcast(listings.select(*_GROUP_DAY).distinct())
    return lags.join(heard, on=list(_GROUP_DAY), how="left_anti").select(*lags.columns)


def as_listings(lags: DataFrame) -> DataFrame:
    """Turn ``partition_lag_minute`` into samples for `rates_minute`.

    A commit beyond the log end or before the log start is left out: with it, the lag says nothing about the log end.
    """
    is_within = (F.col("negative") == 0) & ~(F.col("start_offset") > F.col("committed_offset")).eqNullSafe(F.lit(True))
    known = lags.where(F.col("lag").isNotNull() & is_within)
    return known.select(
        F.xxhash64(*GROUP).alias("group"),
        *PARTITION,
        F.col("as_of").alias("received_at"),
        F.lit(0).cast("bigint").alias("seq"),
        F.col("committed_offset").alias("end_offset"),
        F.col("lag").alias("current_lag"),
        "day",
    )


def filled(lags: DataFrame, seen: DataFrame, longest: timedelta, is_near: Column) -> DataFrame:
    """Fill ``lags``: if a group has rows of some partitions in a minute, its others get rows of that minute.

    A partition's last known values hold until its next row, for ``longest`` at most, and not beyond midnight. The
    columns ``partitions`` and ``of_group`` are the numbers of the partitions of the topic and of the group that hold
    messages or were committed on that day. ``lags`` are those of whole days, and only those that are near are filled.
    ``seen`` are `karrot.pipeline.derive.lag_seconds.all_samples`.
    """
    # Whatever is computed within a group needs no other shuffle. Sorts compare a hash before the names.
    of_groups = lags.where(is_near).repartition(*GROUP)
    of_partition = Window.partitionBy(F.xxhash64(*PARTITION), *PARTITION, "day").orderBy("minute")
    taken_back = F.col("committed_offset").isNull() & F.col("state").isNull()
    holds = F.when(taken_back, F.lit(_MINUTE)).otherwise(F.lit(longest))
    midnight = F.date_add("day", 1).cast("timestamp")
    until = F.least(F.lead("minute").over(of_partition), F.col("minute") + holds, midnight)
    minutes = F.sequence(F.col("minute"), F.col("until") - F.lit(_MINUTE), F.lit(_MINUTE))
    held = of_groups.withColumn("until", until).withColumn("held_minute", F.explode(minutes))
    of_minute = Window.partitionBy(F.xxhash64(*GROUP, "held_minute"), *GROUP, "held_minute")
    is_own = F.bool_or(F.col("held_minute") == F.col("minute")).over(of_minute)
    own = held.withColumn("is_own", is_own).where("is_own")
    names = (*PARTITION, "day", F.col("held_minute").alias("minute"))
    values = ("committed_offset", "lag", "lag_seconds", "owner", "state", "partitions", "of_group")
    return own.join(F.broadcast(topic_sizes(lags, seen)), on=[*_GROUP_DAY, "topic"]).select(*names, *values)


def topic_sizes(lags: DataFrame, seen: DataFrame) -> DataFrame:
    """Count the ``partitions`` of each topic of a group, and those ``of_group``.

    An empty partition without a commit does not count. If a partition was polled on a day, that day's verdicts do not
    say that it holds messages.
    """
    holds = F.col("end_offset") > F.coalesce("start_offset", F.lit(0))
    told, polled, held = (
        F.collect_set(F.when(condition, F.col("partition")))
        for condition in (holds & ~F.col("polled"), F.col("polled"), holds & F.col("polled"))
    )
    holding = F.array_union(F.array_except(told, polled), held).alias("holding")
    of_topic = seen.groupBy("cluster", "topic", "day").agg(holding)
    of_group = lags.groupBy(*_GROUP_DAY, "topic").agg(F.collect_set("partition").alias("known"))
    both = of_group.join(F.broadcast(of_topic), on=["cluster", "topic", "day"], how="left")
    others = F.coalesce("holding", F.array().cast("array<int>"))
    sized = both.withColumn("partitions", F.size(F.array_union("known", others)).cast("bigint"))
    total = F.sum("partitions").over(Window.partitionBy(*_GROUP_DAY))
    return sized.select(*_GROUP_DAY, "topic", "partitions", total.alias("of_group"))


def spread(rows: DataFrame) -> DataFrame:
    """Turn `filled` rows into listings for `karrot.pipeline.derive.skew_minute.skew_minute`; keep ``partitions``."""
    now = {"received_at": F.col("minute"), "seq": F.lit(0), "current_lag": F.col("lag"), "group": F.xxhash64(*GROUP)}
    return rows.withColumns(now)


def group_lags(rows: DataFrame) -> DataFrame:
    """Make rows of ``lag_minute`` from `filled` rows, without events. The partitions of left topics do not count.

    If the lag in seconds of a partition with lag is unknown, the largest known one is a lower bound. ``is_whole`` is
    true if the lag of every committed partition is known.
    """
    by_topic = rows.groupBy(*_GROUP_DAY, "minute", "topic").agg(
        F.try_sum("lag").alias("lag"),
        F.max("lag_seconds").alias("lag_seconds"),
        F.count("lag").alias("known"),
        F.count(F.when(F.col("state").isNull(), F.col("committed_offset"))).alias("whole"),
        F.count("committed_offset").alias("committed"),
        F.count("lag_seconds").alias("timed"),
        F.max("partitions").alias("partitions"),
        F.max("of_group").alias("of_group"),
        F.bool_or(F.col("state").eqNullSafe(LEFT)).alias("is_left"),
    )
    is_left, fits = F.col("is_left"), F.col("lag").isNotNull() | (F.col("known") == 0)
    total = F.try_sum(F.when(~is_left, F.col("lag")))
    lag = F.when(F.bool_and(is_left | fits), total)
    counts = ("known", "whole", "committed", "timed")
    by_minute = by_topic.groupBy(*_GROUP_DAY, "minute").agg(
        lag.alias("lag_min"),
        lag.alias("lag_max"),
        lag.cast("double").alias("lag_avg"),
        lag.alias("lag_last"),
        F.max(F.when(~is_left, F.col("lag_seconds"))).alias("lag_seconds_max"),
        *(F.sum(F.when(is_left, 0).otherwise(F.col(name))).alias(name) for name in counts),
        (F.max("of_group") - F.sum(F.when(is_left, F.col("partitions")).otherwise(0))).alias("partitions"),
    )
    coverage = F.coalesce(F.try_divide("known", "partitions"), F.lit(0.0))
    is_exact = (F.col("known") == F.col("partitions")) & (F.col("timed") == F.col("known"))
    exactness = F.when(is_exact, _KINDS[AgeKind.EXACT]).otherwise(_KINDS[AgeKind.AT_LEAST])
    return by_minute.select(
        "*",
        F.lit(0).cast("bigint").alias("count"),
        F.lit(None).cast("string").alias("worst_status"),
        F.lit(0).cast("bigint").alias("not_ok"),
        coverage.alias("coverage"),
        (F.col("partitions") - F.col("committed")).alias("uncommitted"),
        coverage.alias("complete"),
        F.when(F.col("lag_seconds_max").isNotNull(), exactness).alias("lag_seconds_kind"),
    ).select(*columns_of(LAG_MINUTE), "day", (F.col("known") == F.col("whole")).alias("is_whole"))


def merged(of_events: DataFrame, of_commits: DataFrame) -> DataFrame:
    """Make ``lag_minute`` from both sources: verdicts from events, lag from `group_lags` or from events.

    Lag comes from `group_lags`, with one exception. If a group has events on a day, and its commits give the whole lag
    in at most half of the minutes, lag comes from the events. The reason is that without polls, log ends are known only
    for partitions that verdicts list.
    """
    of_day = Window.partitionBy(*_GROUP_DAY)
    # In the rows of events, `is_whole` is NULL.
    both = of_events.withColumn("is_whole", F.lit(None).cast("boolean")).unionByName(of_commits)
    is_mostly_whole = F.avg(F.col("is_whole").cast("double")).over(of_day) > _MOST
    has_events = F.bool_or(F.col("is_whole").isNull()).over(of_day)
    judged = both.withColumn("is_measured", F.coalesce(is_mostly_whole | ~has_events, F.lit(False)))
    chosen = judged.where(F.col("is_measured") | F.col("is_whole").isNull())
    has_lag = ~F.col("is_measured") | F.col("is_whole").isNotNull()
    added = ("count", "not_ok")
    either = (name for name in columns_of(LAG_MINUTE) if name not in (*GROUP, "minute", *added))
    return (
        chosen.withColumns({name: F.when(has_lag, F.col(name)) for name in _OF_LAG})
        .groupBy(*_GROUP_DAY, "minute")
        .agg(*(F.sum(name).alias(name) for name in added), *(F.max(name).alias(name) for name in either))
        .select(*columns_of(LAG_MINUTE), "day")
    )
