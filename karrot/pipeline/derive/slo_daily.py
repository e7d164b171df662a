"""Derives the table ``slo_daily``: the minutes of a day within the target, and the used error budget."""

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from karrot.event import AgeKind, Status
from karrot.pipeline.derive.status_intervals import severity
from karrot.pipeline.schemas_and_conversions import GROUP, SLO_DAILY, columns_of, with_day

_GROUP_DAY = (*GROUP, "day")


class Objective(NamedTuple):
    """The target for the lag in seconds, and the share of minutes (below 1) that must be within this target."""

    target_seconds: float = 60.0
    share: float = 0.99


def slo_daily(minutes: DataFrame, partitions: DataFrame, objective: Objective) -> DataFrame:
    """Make ``slo_daily`` from whole days of ``lag_minute`` and the ``partitions`` that were listed on them.

    A minute is seen if a status was known in it. Without a status, commits can still give the minute's lag in seconds.
    A minute is within the target if its largest known lag in seconds is at most the target. A minute without a known
    lag in seconds, or with a lower bound up to the target, is neither within nor beyond the target. ``burn_rate`` is
    the share of measured minutes beyond the target, divided by the allowed share. At a burn rate of 1, the budget lasts
    the whole period. At 2, it lasts half the period. ``worst_partition`` is the ``topic/partition`` with the largest
    listed lag.
    """
    is_seen = severity("worst_status") > Status.NOTFOUND
    name = F.concat_ws("/", "topic", "partition")
    lagging = partitions.where(F.col("current_lag") > 0)
    largest = F.max(F.struct("current_lag", "topic", "partition", name.alias("name"))).getField("name")
    worst = lagging.groupBy(*_GROUP_DAY).agg(largest.alias("worst_partition"))
    is_open = F.col("lag_seconds_kind").eqNullSafe(AgeKind.AT_LEAST.name.lower()) & (
        F.col("lag_seconds_max") <= objective.target_seconds
    )
    seconds = F.when(~is_open, F.col("lag_seconds_max"))
    beyond = F.col("minutes_measured") - F.col("minutes_within_target")
    daily = (
        minutes.where(is_seen | F.col("coverage").isNotNull())
        .groupBy(*_GROUP_DAY)
        .agg(
            F.count_if(is_seen).alias("minutes_seen"),
            F.count_if(F.col("worst_status") == Status.OK.name).alias("minutes_ok"),
            F.count(seconds).alias("minutes_measured"),
            F.count_if(seconds <= objective.target_seconds).alias("minutes_within_target"),
        )
    )
    return (
        daily.join(worst, on=list(_GROUP_DAY), how="left")
        .select(
            "*",
            F.lit(objective.target_seconds).cast("double").alias("target_seconds"),
            F.lit(objective.share).cast("double").alias("objective"),
            F.round(F.col("minutes_measured") * (1 - objective.share), 6).alias("budget_minutes"),
            F.round(F.try_divide(beyond, F.col("minutes_measured")) / (1 - objective.share), 6).alias("burn_rate"),
        )
        .select(*columns_of(with_day(SLO_DAILY)))
    )
