"""Runs ``karrot pipeline report``: reduces the tables of some days to the findings of a report, with Spark."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.event import DayRange, Incident
from karrot.pipeline.report import aggregates
from karrot.pipeline.report.finding_types import (
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
from karrot.pipeline.store.table_files import Tables, sound

T = TypeVar("T")
_WEEK = timedelta(days=6)


class NothingToReportError(LookupError):
    """The tables have no day of the period. The message names the days in the tables."""


class _Rules(NamedTuple):
    target_seconds: float | None
    objective: float | None


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
    rules = _rules(slo_daily)
    incidents = aggregates.incidents_within(sound(tables.read(spark, "incidents")), period)
    bad_minutes = aggregates.mattering(lag_minute, rules.target_seconds)
    pressures = aggregates.pressures(read("rates_minute")).persist()
    try:
        return Findings(
            period=period,
            target_seconds=rules.target_seconds,
            objective=rules.objective,
            heard_from_s=heard_from_s,
            heard_until_s=heard_until_s,
            days=_rows(DayTotal, aggregates.day_totals(slo_daily)),
            days_before=_rows(DayTotal, aggregates.day_totals(_read(spark, tables, "slo_daily", period.before))),
            groups=slo_daily.select("cluster", "consumer").distinct().count(),
            lags=[
                lag._replace(points=_rows(LagPoint, lag.points))
                for lag in _rows(GroupLag, aggregates.group_lags(lag_minute, period))
            ],
            incidents=_incidents(aggregates.longest(incidents, heard_until_s)),
            open_incidents=_incidents(aggregates.longest(incidents.where("ended_s IS NULL"), heard_until_s)),
            incident_totals=_rows(IncidentTotals, aggregates.incident_totals(incidents))[0],
            flapping=_rows(Flapping, aggregates.flapping(incidents)),
            hours=_rows(Hours, aggregates.hours(read("status_intervals"))),
            skewed=_rows(Skewed, aggregates.skewed(read("skew_minute"), bad_minutes)),
            skew_watched=_rows(AnsweredTopics, aggregates.skew_watched(read("skew_minute")))[0],
            capacities=[
                one._replace(days=_rows(DayPeak, one.days)) for one in _rows(Capacity, aggregates.capacities(pressures))
            ],
            rates_watched=_rows(AnsweredTopics, aggregates.rates_watched(pressures))[0],
            budgets=[
                one._replace(days=_rows(DayBurn, one.days)) for one in _rows(Budget, aggregates.budgets(slo_daily))
            ],
            quarantined=_rows(Quarantined, aggregates.quarantined(read("quarantine")))[0],
        )
    finally:
        pressures.unpersist()


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


def _rules(slo_daily: DataFrame) -> _Rules:
    """The target and the objective of the newest day. Days that were derived separately can have other values."""
    newest = F.max(F.struct("day", "target_seconds", "objective"))
    ((rules,),) = slo_daily.agg(newest).collect()
    return _Rules(None, None) if rules is None else _Rules(rules.target_seconds, rules.objective)
