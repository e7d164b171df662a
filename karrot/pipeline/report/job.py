"""Runs ``karrot pipeline report``: reduces the tables of some days to the findings of a report, with Spark."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from karrot.event import Status
from karrot.history.moments import DayRange
from karrot.history.results import Incident
from karrot.pipeline.derive.status_intervals import severity, status_named
from karrot.pipeline.report.finding_types import (
    GROUPS_SHOWN,
    INCIDENTS_SHOWN,
    AnsweredTopics,
    Budget,
    Capacity,
    DayBurn,
    DayPeak,
    DayTotal,
    Findings,
    Flapping,
    GroupLag,
    Hours,
    IncidentTotals,
    LagPoint,
    Quarantined,
    Skewed,
)
from karrot.pipeline.schemas import GROUP
from karrot.pipeline.store.table_files import Tables, sound

T = TypeVar("T")
_WEEK = timedelta(days=6)


class NothingToReportError(LookupError):
    """The tables have no day of the period. The message names the days in the tables."""


def period_of(spark: SparkSession, tables: Tables, first: date | None, last: date | None) -> DayRange:
    """The requested days, or the newest seven if none were requested. Raises `NothingToReportError`."""
    days = tables.days(spark, "lag_minute")
    if not days:
        raise NothingToReportError(f"{tables.directory} has no derived tables: run karrot pipeline derive")
    last = last or (days[-1] if first is None else max(first, days[-1]))
    period = DayRange(first or last - _WEEK, last)
    if not any(period.first <= day <= period.last for day in days):
        raise NothingToReportError(
            f"{tables.directory} has no day from {period.first} to {period.last}; it has {days[0]} to {days[-1]}"
        )
    return period


def find(spark: SparkSession, tables: Tables, period: DayRange) -> Findings:
    """Compute the findings of the period. Raises `NothingToReportError`."""

    def read(name: str) -> DataFrame:
        return _read(spark, tables, name, period)

    lag_minute, slo_daily = read("lag_minute"), read("slo_daily")
    heard_from_s, heard_until_s = _heard(lag_minute)
    target_seconds, objective = _rules(slo_daily)
    incidents = incidents_within(sound(tables.read(spark, "incidents")), period)
    bad_minutes = mattering(lag_minute, target_seconds)
    rates = pressures(read("rates_minute")).persist()
    try:
        return Findings(
            period=period,
            target_seconds=target_seconds,
            objective=objective,
            heard_from_s=heard_from_s,
            heard_until_s=heard_until_s,
            days=_rows(DayTotal, day_totals(slo_daily)),
            days_before=_rows(DayTotal, day_totals(_read(spark, tables, "slo_daily", period.before))),
            groups=slo_daily.select("cluster", "consumer").distinct().count(),
            lags=[
                lag._replace(points=_rows(LagPoint, lag.points))
                for lag in _rows(GroupLag, group_lags(lag_minute, period))
            ],
            incidents=_incidents(longest(incidents, heard_until_s)),
            open_incidents=_incidents(longest(incidents.where("ended_s IS NULL"), heard_until_s)),
            incident_totals=_rows(IncidentTotals, incident_totals(incidents))[0],
            flapping=_rows(Flapping, flapping(incidents)),
            hours=_rows(Hours, hours(read("status_intervals"))),
            skewed=_rows(Skewed, skewed(read("skew_minute"), bad_minutes)),
            skew_watched=_rows(AnsweredTopics, answered_topics(read("skew_minute"), F.col("max_share").isNotNull()))[0],
            capacities=[one._replace(days=_rows(DayPeak, one.days)) for one in _rows(Capacity, capacities(rates))],
            rates_watched=_rows(AnsweredTopics, answered_topics(rates, F.col("pressed")))[0],
            budgets=[one._replace(days=_rows(DayBurn, one.days)) for one in _rows(Budget, budgets(slo_daily))],
            quarantined=_rows(Quarantined, quarantined(read("quarantine")))[0],
        )
    finally:
        rates.unpersist()


def _read(spark: SparkSession, tables: Tables, name: str, period: DayRange) -> DataFrame:
    """Read the days of the period that the table has.

    A period may be years long. Only existing days are passed on, because each day is checked on the file system.
    """
    there = tables.days(spark, name)
    return sound(tables.read(spark, name, days=[day for day in there if period.first <= day <= period.last]))


def _rows(kind: Callable[..., T], rows: DataFrame | Sequence[Sequence[object]]) -> list[T]:
    return [kind(*row) for row in (rows.collect() if isinstance(rows, DataFrame) else rows)]


def _incidents(rows: DataFrame) -> list[Incident]:
    return [
        Incident(
            row.incident_id,
            row.cluster,
            row.consumer,
            _moment(row.started_s),
            None if row.ended_s is None else _moment(row.ended_s),
            row.ended_by,
            row.worst_status,
            row.peak_lag,
            row.events,
            tuple(row.topics or ()),
        )
        for row in rows.collect()
    ]


def _moment(epoch_s: int) -> datetime:
    """A moment in UTC. Timestamps from Spark have no time zone, so moments are collected as seconds."""
    return datetime.fromtimestamp(epoch_s, UTC)


def _heard(lag_minute: DataFrame) -> tuple[int, int]:
    minute = F.unix_seconds("minute")
    ((first, last),) = lag_minute.agg(F.min(minute), F.max(minute) + 60).collect()
    if first is None:
        raise NothingToReportError("the table lag_minute has no rows on these days")
    return first, last


def _rules(slo_daily: DataFrame) -> tuple[float | None, float | None]:
    """The target and the objective of the newest day. Days that were derived separately can have other values."""
    newest = F.max(F.struct("day", "target_seconds", "objective"))
    ((rules,),) = slo_daily.agg(newest).collect()
    return (None, None) if rules is None else (rules.target_seconds, rules.objective)


POINTS = 168
"""The number of parts into which a period is cut: the hours of a week."""

_TOPIC = (*GROUP, "topic")
_FEWEST_MINUTES = 5
_WINDOW_S = 300
_SUSTAINED = 0.8
_PRESSED = 0.05
_TRICKLE = 1.0
_FLAPS, _SHORT_S = 10, 900
_UNEVEN_GINI, _UNEVEN_SHARE = 0.5, 0.3


def day_totals(slo_daily: DataFrame) -> DataFrame:
    return (
        slo_daily.groupBy("day")
        .agg(
            F.count(F.lit(1)).alias("groups"),
            F.sum("minutes_seen").alias("seen"),
            F.sum("minutes_ok").alias("ok"),
            F.sum("minutes_measured").alias("measured"),
            F.sum("minutes_within_target").alias("within"),
        )
        .orderBy("day")
        .select(*DayTotal._fields)
    )


def group_lags(lag_minute: DataFrame, period: DayRange) -> DataFrame:
    """Make `GroupLag` of the groups with the largest lag in seconds. Groups whose lag is unknown come last."""
    length = max(60, (period.end_s - period.start_s) // POINTS)
    at_s = F.unix_seconds("minute")
    peak = F.struct("lag_seconds_max", "lag_max", (-at_s).alias("earlier"))
    stretches = lag_minute.groupBy(*GROUP, (at_s - F.pmod(at_s - period.start_s, F.lit(length))).alias("at_s")).agg(
        F.max("lag_seconds_max").alias("seconds"),
        F.max("lag_max").alias("lag"),
        F.max(severity("worst_status")).alias("worst"),
        F.max(peak).alias("peak"),
    )
    return (
        stretches.groupBy(*GROUP)
        .agg(
            F.max("seconds").alias("peak_seconds"),
            F.max("lag").alias("peak_lag"),
            (-F.max("peak").getField("earlier")).alias("peak_at_s"),
            status_named(F.max("worst")).alias("worst_status"),
            F.sort_array(F.collect_list(F.struct("at_s", "seconds"))).alias("points"),
        )
        .where((F.col("peak_seconds") > 0) | (F.col("peak_lag") > 0))
        .orderBy(F.desc_nulls_last("peak_seconds"), F.desc_nulls_last("peak_lag"), *GROUP)
        .limit(GROUPS_SHOWN)
        .select(*GroupLag._fields)
    )


def incidents_within(incidents: DataFrame, period: DayRange) -> DataFrame:
    """Select the rows of ``incidents`` that were open at some moment of the period, with their times in seconds."""
    ended_s = F.unix_seconds("ended_at")
    return (
        incidents.withColumn("started_s", F.unix_seconds("started_at"))
        .withColumn("ended_s", ended_s)
        .where(F.col("started_s") < period.end_s)
        .where(F.col("ended_s").isNull() | (F.col("ended_s") >= period.start_s))
        .select(
            "incident_id", *GROUP, "started_s", "ended_s", "ended_by", "worst_status", "peak_lag", "events", "topics"
        )
    )


def longest(incidents: DataFrame, now_s: int) -> DataFrame:
    """Select the longest of `incidents_within`. An open incident lasts until ``now_s``."""
    lasted = F.coalesce("ended_s", F.lit(now_s)) - F.col("started_s")
    return incidents.orderBy(F.desc(lasted), "started_s", *GROUP).limit(INCIDENTS_SHOWN)


def incident_totals(incidents: DataFrame) -> DataFrame:
    return incidents.agg(
        F.count(F.lit(1)).alias("incidents"),
        F.count_if(F.col("ended_s").isNull()).alias("open"),
        F.count_if(F.col("ended_by") == "silence").alias("silent"),
    ).select(*IncidentTotals._fields)


def flapping(incidents: DataFrame) -> DataFrame:
    """Make `Flapping` of the groups with at least ten ended incidents and a median duration of at most 15 minutes."""
    return (
        incidents.where(F.col("ended_s").isNotNull())
        .groupBy(*GROUP)
        .agg(F.count(F.lit(1)).alias("ended"), F.median(F.col("ended_s") - F.col("started_s")).alias("median_s"))
        .where((F.col("ended") >= _FLAPS) & (F.col("median_s") <= _SHORT_S))
        .orderBy(F.desc("ended"), *GROUP)
        .limit(INCIDENTS_SHOWN)
        .select(*Flapping._fields)
    )


def hours(status_intervals: DataFrame) -> DataFrame:
    lasted = F.unix_seconds("to_at") - F.unix_seconds("from_at")
    number = severity("status")

    def seconds(chosen: Column) -> Column:
        return F.coalesce(F.sum(F.when(chosen, lasted)), F.lit(0))

    return (
        status_intervals.groupBy(*GROUP)
        .agg(
            seconds(number == Status.OK).alias("ok"),
            seconds(number == Status.WARN).alias("warn"),
            seconds(number > Status.WARN).alias("err"),
        )
        .where(F.col("warn") + F.col("err") > 0)
        .orderBy(F.desc(F.col("warn") + F.col("err")), *GROUP)
        .limit(GROUPS_SHOWN)
        .select(*Hours._fields)
    )


def mattering(lag_minute: DataFrame, target_seconds: float | None) -> DataFrame:
    """The minutes in which a group was not OK or beyond its target.

    In other minutes, a lag of one message can make a partition the worst partition.
    """
    bad = F.col("not_ok") > 0
    late = F.coalesce(F.col("lag_seconds_max") > F.lit(target_seconds), F.lit(False))
    return lag_minute.where(bad | late).select(*GROUP, "minute")


def skewed(skew_minute: DataFrame, minutes: DataFrame) -> DataFrame:
    """Make `Skewed` of the topics whose worst partition stood out in at least five of the `mattering` minutes.

    A partition stands out if a cause is known, or if lag is uneven (a Gini coefficient of at least 0.5) and the
    partition has at least 30 % of the lag.
    """
    lagging = skew_minute.where(F.col("max_share").isNotNull()).join(minutes, on=[*GROUP, "minute"], how="left_semi")
    uneven = (F.col("gini") >= _UNEVEN_GINI) & (F.col("max_share") >= _UNEVEN_SHARE)
    stood_out = lagging.where(F.col("cause").isNotNull() | uneven)
    return (
        stood_out.groupBy(*_TOPIC)
        .agg(
            F.count(F.lit(1)).alias("minutes"),
            F.avg("max_share").alias("share"),
            F.avg("gini").alias("gini"),
            F.mode("worst_partition", True).alias("partition"),
            F.mode("owner", True).alias("owner"),
            F.mode("cause", True).alias("cause"),
        )
        .where(F.col("minutes") >= _FEWEST_MINUTES)
        .orderBy(F.desc("minutes"), F.desc("gini"), *_TOPIC)
        .limit(GROUPS_SHOWN)
        .select(*Skewed._fields)
    )


def answered_topics(rows: DataFrame, is_answered: Column) -> DataFrame:
    """Count, as `AnsweredTopics`, the topics that have rows, and those with a row that answers the question."""
    topic = F.struct(*_TOPIC)
    counts = F.countDistinct(topic).alias("topics"), F.countDistinct(F.when(is_answered, topic)).alias("answered")
    return rows.agg(*counts).select(*AnsweredTopics._fields)


def pressures(rates_minute: DataFrame) -> DataFrame:
    """Compute the produce and consume rates of each topic, for each five minutes with enough samples.

    At least four fifths of the time must be covered, for every partition that has rates on that day. A consumer is
    under pressure (``pressed``) while it falls behind or catches up. Its consume rate shows its capacity only under
    pressure. At other times, this rate shows the produce rate.
    """
    window_s = F.unix_seconds("minute") - F.pmod(F.unix_seconds("minute"), F.lit(_WINDOW_S))
    covered_s = F.sum("coverage") * 60
    per_partition = (
        rates_minute.groupBy(*_TOPIC, "day", window_s.alias("window_s"), "partition")
        .agg(
            covered_s.alias("covered_s"),
            (F.try_sum("produced") / covered_s).alias("produced"),
            (F.try_sum("consumed") / covered_s).alias("consumed"),
        )
        .where(F.col("covered_s") >= _SUSTAINED * _WINDOW_S)
    )
    per_topic = per_partition.groupBy(*_TOPIC, "day", "window_s").agg(
        F.count(F.lit(1)).alias("partitions"), F.sum("produced").alias("produced"), F.sum("consumed").alias("consumed")
    )
    whole = F.col("partitions") == F.max("partitions").over(Window.partitionBy(*_TOPIC, "day"))
    off = F.abs(F.col("consumed") - F.col("produced"))
    return (
        per_topic.withColumn("whole", whole)
        .where("whole")
        .select(*_TOPIC, "day", "produced", "consumed", (off > _PRESSED * F.col("produced")).alias("pressed"))
    )


def capacities(pressures: DataFrame) -> DataFrame:
    """Make `Capacity` of the consumers whose best rate is nearest to the peak of the last day.

    Peaks of less than one message per second are left out, because they show nothing about capacity.
    """
    daily = pressures.groupBy(*_TOPIC, "day").agg(
        F.max("produced").alias("produced"), F.max(F.when(F.col("pressed"), F.col("consumed"))).alias("best")
    )
    peak = F.struct("day", "produced")
    return (
        daily.groupBy(*_TOPIC)
        .agg(
            F.max("best").alias("best"),
            F.sort_array(F.collect_list(peak)).alias("days"),
            F.max(peak).getField("produced").alias("last"),
        )
        .where((F.col("best") > 0) & (F.col("last") >= _TRICKLE))
        .orderBy(F.col("best") / F.col("last"), *_TOPIC)
        .limit(GROUPS_SHOWN)
        .select(*Capacity._fields)
    )


def budgets(slo_daily: DataFrame) -> DataFrame:
    """Make `Budget` of the groups that used the largest share of their error budget. Unused budgets are left out."""
    beyond = F.col("minutes_measured") - F.col("minutes_within_target")
    return (
        slo_daily.groupBy(*GROUP)
        .agg(
            F.sum("minutes_measured").alias("measured"),
            F.sum(beyond).alias("beyond"),
            F.sum("budget_minutes").alias("allowed"),
            F.max_by("worst_partition", beyond).alias("worst_partition"),
            F.sort_array(F.collect_list(F.struct("day", F.col("burn_rate").alias("rate")))).alias("days"),
        )
        .where(F.col("beyond") > 0)
        .withColumn("spent", F.try_divide("beyond", "allowed"))
        .orderBy(F.desc("spent"), F.desc("beyond"), *GROUP)
        .limit(GROUPS_SHOWN)
        .select(*Budget._fields)
    )


def quarantined(quarantine: DataFrame) -> DataFrame:
    unread = F.col("missing").isNull()
    return quarantine.agg(
        F.count_if(unread).alias("lines"), F.coalesce(F.sum("missing"), F.lit(0)).alias("missing")
    ).select(*Quarantined._fields)
