"""Runs ``karrot pipeline report``: reduces the tables of some days to the findings of a report, with Spark's SQL."""

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from karrot.history.answers_and_errors import Incident
from karrot.history.time_ranges import DayRange
from karrot.pipeline.derive.status_intervals import severity
from karrot.pipeline.report import finding_types as types
from karrot.pipeline.store.table_files import Tables

_WEEK = timedelta(days=6)
POINTS: Final = 168
"""The number of parts of a period, as many as a week has hours."""


class NothingToReportError(LookupError):
    """The tables have no day of the period. The message names the days in the tables."""


def period_of(spark: SparkSession, tables: Tables, first: date | None, last: date | None) -> DayRange:
    """Return the requested days, or the newest seven if none were requested. Raises `NothingToReportError`."""
    days = tables.days(spark, "lag_minute")
    if not days:
        derive = "karrot pipeline run --once --only derive"
        raise NothingToReportError(f"{tables.directory} has no derived tables: run {derive}")
    last = last or (days[-1] if first is None else max(first, days[-1]))
    period = DayRange(first or last - _WEEK, last)
    if not any(period.first <= day <= period.last for day in days):
        raise NothingToReportError(
            f"{tables.directory} has no day from {period.first} to {period.last}; it has {days[0]} to {days[-1]}"
        )
    return period


_DAYS: Final = """
SELECT day, count(*), sum(minutes_seen), sum(minutes_ok), sum(minutes_measured), sum(minutes_within_target)
FROM {slo_daily} GROUP BY day ORDER BY day
"""

_LAGS: Final = """
WITH parts AS (
    SELECT cluster, consumer, at_s - pmod(at_s - :start_s, :length_s) AS part_s, max(lag_seconds_max) AS seconds,
        max(lag_max) AS lag, max(severity) AS severity, max_by(worst_status, severity) AS worst,
        max(struct(lag_seconds_max, lag_max, -at_s AS earlier, lag_seconds_kind AS kind)) AS peak
    FROM (SELECT *, unix_seconds(minute) AS at_s FROM {lag_minute}) GROUP BY 1, 2, 3
)
SELECT cluster, consumer, max(seconds) AS peak_seconds, max(lag) AS peak_lag, -max(peak).earlier,
    max_by(worst, severity), coalesce(max(peak).kind = 'at_least', false),
    sort_array(collect_list(struct(part_s, seconds)))
FROM parts GROUP BY cluster, consumer HAVING peak_seconds > 0 OR peak_lag > 0
ORDER BY peak_seconds DESC NULLS LAST, peak_lag DESC NULLS LAST, cluster, consumer LIMIT :groups
"""
"""The groups with the largest lag in seconds. Groups whose lag is unknown come last."""

_UNKNOWN: Final = "SELECT count(DISTINCT cluster, consumer) FROM {lag_minute} WHERE lag_max IS NULL OR coverage < 1"

_INCIDENTS: Final = """
SELECT incident_id, cluster, consumer, unix_seconds(started_at) AS started_s, unix_seconds(ended_at) AS ended_s,
    ended_by, worst_status, peak_lag, events, topics
FROM {incidents} WHERE unix_seconds(started_at) < :end_s AND (ended_at IS NULL OR unix_seconds(ended_at) >= :start_s)
"""
"""The incidents that were open at some time in the period."""

_LONGEST: Final = """
SELECT * FROM {incidents} WHERE NOT :only_open OR ended_s IS NULL
ORDER BY coalesce(ended_s, :now_s) - started_s DESC, started_s, cluster, consumer LIMIT :incidents
"""

_INCIDENT_TOTALS: Final = """
SELECT count(*), count_if(ended_s IS NULL), count_if(ended_by = 'silence') FROM {incidents}
"""

_FLAPPING: Final = """
SELECT cluster, consumer, count(*) AS ended, median(ended_s - started_s) AS median_s
FROM {incidents} WHERE ended_s IS NOT NULL GROUP BY cluster, consumer HAVING ended >= 10 AND median_s <= 900
ORDER BY ended DESC, cluster, consumer LIMIT :incidents
"""
"""The groups with at least ten ended incidents and a median duration of at most 15 minutes."""

_HOURS: Final = """
SELECT cluster, consumer, sum(if(severity = 1, lasted, 0)), sum(if(severity = 2, lasted, 0)) AS warn,
    sum(if(severity > 2, lasted, 0)) AS err
FROM (SELECT *, unix_seconds(to_at) - unix_seconds(from_at) AS lasted FROM {status_intervals})
GROUP BY cluster, consumer HAVING warn + err > 0 ORDER BY warn + err DESC, cluster, consumer LIMIT :groups
"""

_SKEWED: Final = """
SELECT cluster, consumer, topic, count(*) AS minutes, avg(max_share), avg(gini) AS mean_gini,
    mode(worst_partition, true), mode(owner, true), mode(cause, true)
FROM {skew_minute} LEFT SEMI JOIN
    (SELECT * FROM {lag_minute} WHERE not_ok > 0 OR lag_seconds_max > :target) USING (cluster, consumer, minute)
WHERE max_share IS NOT NULL AND (cause IS NOT NULL OR (gini >= 0.5 AND max_share >= 0.3))
GROUP BY cluster, consumer, topic HAVING minutes >= 5
ORDER BY minutes DESC, mean_gini DESC, cluster, consumer, topic LIMIT :groups
"""
"""The topics whose worst partition stood out in at least five minutes.

A partition stands out if a cause is known, or if lag is uneven and the partition has at least 30 % of the lag. A minute
counts only if the group was not OK or its lag was above its target. In other minutes, a lag of one message can make a
partition the worst partition.
"""

_SKEW_WATCHED: Final = """
SELECT count(DISTINCT topic_of), count(DISTINCT if(max_share IS NOT NULL, topic_of, NULL))
FROM (SELECT *, struct(cluster, consumer, topic) AS topic_of FROM {skew_minute})
"""

_PRESSURES: Final = """
WITH partitions AS (
    SELECT cluster, consumer, topic, day, partition, unix_seconds(minute) DIV 300 AS window,
        60 * sum(coverage) AS covered_s, try_sum(produced) / (60 * sum(coverage)) AS produced,
        try_sum(consumed) / (60 * sum(coverage)) AS consumed
    FROM {rates_minute} GROUP BY 1, 2, 3, 4, 5, 6 HAVING covered_s >= 240
), topics AS (
    SELECT cluster, consumer, topic, day, sum(produced) AS produced, sum(consumed) AS consumed, count(*) AS partitions,
        max(count(*)) OVER (PARTITION BY cluster, consumer, topic, day) AS most_partitions
    FROM partitions GROUP BY cluster, consumer, topic, day, window
)
SELECT cluster, consumer, topic, day, produced, consumed, abs(consumed - produced) > 0.05 * produced AS pressed
FROM topics WHERE partitions = most_partitions
"""
"""The produce and consume rates of each topic, for each five minutes with enough samples.

Samples must cover four fifths of the five minutes, for every partition that has rates on that day. A consumer is under
pressure (``pressed``) while it falls behind or catches up. Its consume rate shows its capacity only under pressure. At
other times, its consume rate equals the produce rate.
"""

_CAPACITIES: Final = """
WITH daily AS (
    SELECT cluster, consumer, topic, day, max(produced) AS produced, max(if(pressed, consumed, NULL)) AS best
    FROM {rates} GROUP BY cluster, consumer, topic, day
), topics AS (
    SELECT cluster, consumer, topic, max(best) AS best, max_by(produced, day) AS last,
        sort_array(collect_list(struct(day, produced))) AS days
    FROM daily GROUP BY cluster, consumer, topic
)
SELECT cluster, consumer, topic, best, days FROM topics WHERE best > 0 AND last >= 1
ORDER BY best / last, cluster, consumer, topic LIMIT :groups
"""
"""The consumers whose best consume rate is nearest to the peak produce rate of the last day.

Peaks of less than one message per second are left out, because such peaks show nothing about capacity.
"""

_RATES_WATCHED: Final = """
SELECT count(DISTINCT topic_of), count(DISTINCT if(pressed, topic_of, NULL))
FROM (SELECT *, struct(cluster, consumer, topic) AS topic_of FROM {rates})
"""

_BUDGETS: Final = """
SELECT cluster, consumer, sum(minutes_measured), sum(beyond), sum(budget_minutes),
    try_divide(sum(beyond), sum(budget_minutes)) AS spent, max_by(worst_partition, beyond),
    sort_array(collect_list(struct(day, burn_rate)))
FROM (SELECT *, minutes_measured - minutes_within_target AS beyond FROM {slo_daily})
GROUP BY cluster, consumer HAVING sum(beyond) > 0 ORDER BY spent DESC, sum(beyond) DESC, cluster, consumer LIMIT :groups
"""
"""The groups that used the largest share of their error budget. Groups that used no budget are left out."""

_QUARANTINED: Final = "SELECT count_if(missing IS NULL), coalesce(sum(missing), 0) FROM {quarantine}"


class Queries:
    """Runs queries on the tables of a period. A query can use the names in `frames` and `numbers`."""

    def __init__(self, frames: dict[str, DataFrame], period: DayRange) -> None:
        self.frames = frames
        self.numbers: dict[str, Any] = {
            "start_s": period.start_s,
            "end_s": period.end_s,
            "length_s": max(60, (period.end_s - period.start_s) // POINTS),
            "groups": types.GROUPS_SHOWN,
            "incidents": types.INCIDENTS_SHOWN,
        }

    def frame(self, query: str, **numbers: object) -> DataFrame:
        spark = next(iter(self.frames.values())).sparkSession
        return spark.sql(query, args=self.numbers | numbers, **self.frames)

    def rows(self, kind: Any, query: str, item: Any = None) -> list[Any]:
        """Return the result as rows of type ``kind``. With ``item``, the last column is a list of type ``item``."""
        found = [[*row] for row in self.frame(query).collect()]
        return [kind(*row[:-1], row[-1] if item is None else [item(*each) for each in row[-1]]) for row in found]

    def longest(self, *, only_open: bool) -> list[Incident]:
        """Return the longest incidents. An open incident lasts until the newest event."""
        return [
            Incident(*(*row[:3], _moment(row[3]), row[4] and _moment(row[4]), *row[5:9], tuple(row[9] or ())))
            for row in self.frame(_LONGEST, only_open=only_open).collect()
        ]


def find(spark: SparkSession, tables: Tables, period: DayRange) -> types.Findings:
    """Compute the findings of the period. Raises `NothingToReportError`."""
    names = ("slo_daily", "skew_minute", "rates_minute", "quarantine")
    frames = {name: _read(spark, tables, name, period) for name in names}
    frames["lag_minute"] = _read(spark, tables, "lag_minute", period).withColumn("severity", severity("worst_status"))
    intervals = _read(spark, tables, "status_intervals", period)
    frames["status_intervals"] = intervals.withColumn("severity", severity("status"))
    frames["incidents"] = tables.read(spark, "incidents")
    ask = Queries(frames, period)
    frames["incidents"] = ask.frame(_INCIDENTS)
    ((first_s, until_s),) = ask.frame(
        "SELECT min(unix_seconds(minute)), max(unix_seconds(minute)) + 60 FROM {lag_minute}"
    ).collect()
    if first_s is None:
        raise NothingToReportError("the table lag_minute has no rows on these days")
    # Days that were derived separately can have different targets and objectives. Use those of the newest day.
    rules = ask.frame("SELECT max(struct(day, target_seconds, objective)) FROM {slo_daily}").collect()[0][0]
    _, target, objective = rules or (None, None, None)
    ask.numbers |= {"now_s": until_s, "target": target}
    rates = frames["rates"] = ask.frame(_PRESSURES).persist()
    before = Queries({"slo_daily": _read(spark, tables, "slo_daily", period.before)}, period)
    try:
        return types.Findings(
            period=period,
            target_seconds=target,
            objective=objective,
            heard_from_s=first_s,
            heard_until_s=until_s,
            days=ask.rows(types.DayTotal, _DAYS),
            days_before=before.rows(types.DayTotal, _DAYS),
            groups=frames["slo_daily"].select("cluster", "consumer").distinct().count(),
            lags=ask.rows(types.GroupLag, _LAGS, types.LagPoint),
            incidents=ask.longest(only_open=False),
            open_incidents=ask.longest(only_open=True),
            incident_totals=ask.rows(types.IncidentTotals, _INCIDENT_TOTALS)[0],
            flapping=ask.rows(types.Flapping, _FLAPPING),
            hours=ask.rows(types.Hours, _HOURS),
            skewed=ask.rows(types.Skewed, _SKEWED),
            skew_watched=ask.rows(types.AnsweredTopics, _SKEW_WATCHED)[0],
            capacities=ask.rows(types.Capacity, _CAPACITIES, types.DayPeak),
            rates_watched=ask.rows(types.AnsweredTopics, _RATES_WATCHED)[0],
            budgets=ask.rows(types.Budget, _BUDGETS, types.DayBurn),
            quarantined=ask.rows(types.Quarantined, _QUARANTINED)[0],
            unknown=ask.frame(_UNKNOWN).collect()[0][0],
        )
    finally:
        rates.unpersist()


def _read(spark: SparkSession, tables: Tables, name: str, period: DayRange) -> DataFrame:
    return tables.read(spark, name, days=period.dates)


def _moment(epoch_s: int) -> datetime:
    """Convert epoch seconds to UTC. Spark's timestamps have no time zone, so times are collected as seconds."""
    return datetime.fromtimestamp(epoch_s, UTC)
