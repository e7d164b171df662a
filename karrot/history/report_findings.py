"""Reduces the tables of some days to the findings of a report, in the units of the tables.

Every list has a limit (`GROUPS_SHOWN`, `INCIDENTS_SHOWN`, one row per day), even for large tables. Times are epoch
seconds. ``None`` means "unknown".
"""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple

from karrot.history.answers_and_errors import INCIDENTS, OVERLAPS, Incident, NothingToReport, incident_of
from karrot.history.duckdb_reader import Row, TablesAtOneTime
from karrot.history.time_ranges import DayRange
from karrot.history.time_series import severity

GROUPS_SHOWN: Final = 20
INCIDENTS_SHOWN: Final = 500


class DayTotal(NamedTuple):
    """The totals of all groups on a day. ``measured`` counts the minutes in which the lag in seconds was known."""

    day: date
    groups: int
    seen: int
    ok: int
    measured: int
    within: int


class LagPoint(NamedTuple):
    """The largest lag, in seconds, in one part of the period. The part begins at ``at_s``."""

    at_s: int
    seconds: float | None


class GroupLag(NamedTuple):
    """The lag of a group over the period.

    ``peak_at_s`` is the minute of ``peak_seconds`` or, if that is ``None``, the minute of ``peak_lag``. ``is_bound``
    says that ``peak_seconds`` is a lower bound.
    """

    cluster: str
    consumer: str
    peak_seconds: float | None
    peak_lag: int | None
    peak_at_s: int | None
    worst_status: str | None
    is_bound: bool
    points: Sequence[LagPoint]


class Hours(NamedTuple):
    cluster: str
    consumer: str
    ok: int
    warn: int
    err: int


class Skewed(NamedTuple):
    """The skew of a topic's lag in the minutes in which the group was not OK or its lag was above its target.

    ``partition``, ``owner`` and ``cause`` are the most frequent values in these minutes.
    """

    cluster: str
    consumer: str
    topic: str
    minutes: int
    share: float
    gini: float
    partition: int
    owner: str | None
    cause: str | None


class DayPeak(NamedTuple):
    """The largest average produce rate over five minutes on a day."""

    day: date
    produced: float


class Capacity(NamedTuple):
    """A consumer's best consume rate over five minutes under pressure, and the peak produce rate of each day."""

    cluster: str
    consumer: str
    topic: str
    best: float
    days: Sequence[DayPeak]


class DayBurn(NamedTuple):
    """The burn rate of a group's error budget on a day. The rate is ``None`` if no minute was measured."""

    day: date
    rate: float | None


class Budget(NamedTuple):
    """The error budget of a group. ``spent`` is the used share of the budget; 1 is the whole budget."""

    cluster: str
    consumer: str
    measured: int
    beyond: int
    allowed: float
    spent: float
    worst_partition: str | None
    days: Sequence[DayBurn]


class AnsweredTopics(NamedTuple):
    """The number of topics with data, and the number of topics whose data suffice for a report section."""

    topics: int
    answered: int


class IncidentTotals(NamedTuple):
    incidents: int
    open: int
    silent: int


class Flapping(NamedTuple):
    """A group with many short incidents: the number of ended incidents, and their median duration."""

    cluster: str
    consumer: str
    ended: int
    median_s: float


class Quarantined(NamedTuple):
    """The number of lines that could not be read, and of lines that are missing from segments."""

    lines: int
    missing: int


class Findings(NamedTuple):
    """All data of a report.

    ``incidents`` are the longest incidents, ``open_incidents`` the longest open incidents. ``incident_totals`` counts
    all incidents. ``unknown`` counts the groups with a minute in which the lag of some partitions is not known.
    """

    period: DayRange
    target_seconds: float | None
    objective: float | None
    heard_from_s: int
    heard_until_s: int
    days: Sequence[DayTotal]
    days_before: Sequence[DayTotal]
    groups: int
    lags: Sequence[GroupLag]
    incidents: Sequence[Incident]
    open_incidents: Sequence[Incident]
    incident_totals: IncidentTotals
    flapping: Sequence[Flapping]
    hours: Sequence[Hours]
    skewed: Sequence[Skewed]
    skew_watched: AnsweredTopics
    capacities: Sequence[Capacity]
    rates_watched: AnsweredTopics
    budgets: Sequence[Budget]
    quarantined: Quarantined
    unknown: int = 0


_WEEK: Final = timedelta(days=6)
_POINTS: Final = 168
"""The number of parts of a period, as many as a week has hours."""


def _period(tables: TablesAtOneTime, first: date | None, last: date | None) -> DayRange:
    days = tables.days("lag_minute", lambda _day: True)
    last = last or (days[-1] if first is None else max(first, days[-1]))
    first = first or last - _WEEK
    period = DayRange(first, last)
    if not any(map(period.has, days)):
        raise NothingToReport(f"{tables} has no day from {first} to {last}; it has {days[0]} to {days[-1]}")
    return period


_HEARD: Final = """
SELECT epoch_ms(min(minute)) // 1000, epoch_ms(max(minute)) // 1000 + 60,
  count(DISTINCT (cluster, consumer)) FILTER (lag_max IS NULL OR coverage < 1)
FROM {table}
"""

_LAGS: Final = f"""
WITH minutes AS NOT MATERIALIZED (
  SELECT cluster, consumer, epoch_ms(minute) // 1000 AS at_s, lag_seconds_max AS seconds, lag_max AS lag,
    worst_status, {severity("worst_status")} AS severity, coalesce(lag_seconds_kind = 'at_least', false) AS is_bound
  FROM {{table}}
), worst AS (
  SELECT cluster, consumer, max(seconds) AS peak_seconds, max(lag) AS peak_lag,
    arg_max(worst_status, severity) AS worst_status
  FROM minutes GROUP BY ALL HAVING peak_seconds > 0 OR peak_lag > 0
  ORDER BY peak_seconds DESC NULLS LAST, peak_lag DESC NULLS LAST, cluster, consumer LIMIT $groups
), parts AS (
  SELECT cluster, consumer, at_s - (at_s - $start_s) % $length_s AS part_s, max(seconds) AS seconds,
    max({{seconds: coalesce(seconds, -1), lag: coalesce(lag, -1), earlier: -at_s, is_bound: is_bound}}) AS peak
  FROM minutes SEMI JOIN worst USING (cluster, consumer) GROUP BY ALL
), groups AS (
  SELECT cluster, consumer, max(peak) AS peak, list((part_s, seconds) ORDER BY part_s) AS points
  FROM parts GROUP BY ALL
)
SELECT cluster, consumer, peak_seconds, peak_lag, -peak.earlier, worst_status, peak.is_bound, points
FROM worst JOIN groups USING (cluster, consumer)
ORDER BY peak_seconds DESC NULLS LAST, peak_lag DESC NULLS LAST, cluster, consumer
"""  # noqa: S608 (constants; every value is bound)
"""The groups with the largest lag in seconds. Groups whose lag is unknown come last."""

_LASTED: Final = "coalesce(epoch_ms(ended_at), $now) - epoch_ms(started_at) DESC, started_at, cluster, consumer"
_LONGEST: Final = f"""
{INCIDENTS} QUALIFY row_number() OVER (PARTITION BY ended_at IS NULL ORDER BY {_LASTED}) <= $incidents
ORDER BY {_LASTED}
"""
"""The longest open and the longest ended incidents. An open incident lasts until the newest event."""

_INCIDENT_TOTALS: Final = f"""
SELECT count(*), count(*) FILTER (ended_at IS NULL), count(*) FILTER (ended_by = 'silence')
FROM {{table}} WHERE {OVERLAPS}
"""  # noqa: S608 (as above)

_FLAPPING: Final = f"""
SELECT cluster, consumer, count(*) AS ended, median(epoch_ms(ended_at) - epoch_ms(started_at)) / 1000 AS median_s
FROM {{table}} WHERE {OVERLAPS} AND ended_at IS NOT NULL GROUP BY ALL HAVING ended >= 10 AND median_s <= 900
ORDER BY ended DESC, cluster, consumer LIMIT $incidents
"""  # noqa: S608 (as above)
"""The groups with at least ten ended incidents and a median duration of at most 15 minutes."""

_HOURS: Final = f"""
SELECT cluster, consumer, sum(if(severity = 1, lasted, 0)), sum(if(severity = 2, lasted, 0)) AS warn,
  sum(if(severity > 2, lasted, 0)) AS err
FROM (SELECT *, {severity("status")} AS severity, epoch_ms(to_at) // 1000 - epoch_ms(from_at) // 1000 AS lasted
  FROM {{table}})
GROUP BY ALL HAVING warn + err > 0 ORDER BY warn + err DESC, cluster, consumer LIMIT $groups
"""  # noqa: S608 (as above)

_SKEWED: Final = """
SELECT cluster, consumer, topic, count(*) AS minutes, avg(max_share), avg(gini) AS mean_gini,
  mode(worst_partition ORDER BY worst_partition), mode(owner ORDER BY owner), mode(cause ORDER BY cause)
FROM {table} SEMI JOIN (
  SELECT * FROM read_parquet($lag_minute, union_by_name = true) WHERE not_ok > 0 OR lag_seconds_max > $target
) USING (cluster, consumer, minute)
WHERE max_share IS NOT NULL AND (cause IS NOT NULL OR (gini >= 0.5 AND max_share >= 0.3))
GROUP BY ALL HAVING minutes >= 5 ORDER BY minutes DESC, mean_gini DESC, cluster, consumer, topic LIMIT $groups
"""
"""The topics whose worst partition stood out in at least five minutes.

A partition stands out if a cause is known, or if lag is uneven and the partition has at least 30 % of the lag. A minute
counts only if the group was not OK or its lag was above its target. In other minutes, a lag of one message can make a
partition the worst partition.
"""

_SKEW_WATCHED: Final = """
SELECT count(*), count(*) FILTER (known > 0)
FROM (SELECT count(max_share) AS known FROM {table} GROUP BY cluster, consumer, topic)
"""

_RATES: Final = """
WITH partitions AS (
  SELECT cluster, consumer, topic, partition, epoch_ms(minute) // 300000 AS five_minutes,
    60 * sum(coverage) AS covered_s, sum(produced) / covered_s AS produced, sum(consumed) / covered_s AS consumed
  FROM {table} GROUP BY ALL HAVING covered_s >= 240
), topics AS (
  SELECT cluster, consumer, topic, sum(produced) AS produced, sum(consumed) AS consumed, count(*) AS partitions,
    max(count(*)) OVER (PARTITION BY cluster, consumer, topic) AS most_partitions
  FROM partitions GROUP BY cluster, consumer, topic, five_minutes
)
SELECT cluster, consumer, topic, max(produced), max(consumed) FILTER (abs(consumed - produced) > 0.05 * produced)
FROM topics WHERE partitions = most_partitions GROUP BY ALL
"""
"""The peak produce rate of each topic on one day, and the best consume rate under pressure.

The rates are those of five minutes with enough samples. Samples must cover four fifths of the five minutes, for every
partition that has rates on that day. A consumer is under pressure while it falls behind or catches up. Its consume rate
shows its capacity only under pressure. At other times, its consume rate equals the produce rate.
"""

_DAYS: Final = """
SELECT {day} AS day, count(*), sum(minutes_seen), sum(minutes_ok), sum(minutes_measured),
  sum(minutes_within_target)
FROM {table} GROUP BY ALL ORDER BY day
"""

_RULES: Final = """
SELECT count(DISTINCT (cluster, consumer)), unnest(arg_max((target_seconds, objective), {day})) FROM {table}
"""
"""The number of groups, and the newest day's rules: days that were derived separately can have different rules."""

_BUDGETS: Final = """
SELECT cluster, consumer, sum(minutes_measured), sum(beyond) AS all_beyond, sum(budget_minutes) AS allowed,
  all_beyond / nullif(allowed, 0) AS spent, arg_max_null(worst_partition, (beyond, day)),
  list((day, burn_rate) ORDER BY day)
FROM (SELECT *, {day} AS day, minutes_measured - minutes_within_target AS beyond FROM {table})
GROUP BY ALL HAVING all_beyond > 0
ORDER BY spent DESC NULLS LAST, all_beyond DESC, cluster, consumer LIMIT $groups
"""
"""The groups that used the largest share of their error budget. Groups that used no budget are left out."""

_QUARANTINED: Final = "SELECT count(*) FILTER (missing IS NULL), coalesce(sum(missing), 0)::BIGINT FROM {table}"


def findings(tables: TablesAtOneTime, first: date | None, last: date | None) -> Findings:
    """Return the findings of the days, or of the newest seven. Raises `NothingToReport` and `HistoryError`."""
    period = _period(tables, first, last)

    def rows(table: str, query: str, **asked: object) -> list[Row]:
        return tables.rows(table, period.has, query, asked)

    def incidents(query: str, **asked: object) -> list[Row]:
        bounds = {"start": period.start_s * 1000, "end": period.end_s * 1000}
        # An incident is on the day on which it started, even if it lasts longer.
        return tables.rows("incidents", lambda day: day <= period.last, query, bounds | asked)

    ((first_s, until_s, unknown),) = rows("lag_minute", _HEARD)
    groups, target, objective = next(iter(rows("slo_daily", _RULES)), (0, None, None))
    longest = [*map(incident_of, incidents(_LONGEST, now=until_s * 1000, incidents=INCIDENTS_SHOWN))]
    length_s = max(60, (period.end_s - period.start_s) // _POINTS)
    lags = rows("lag_minute", _LAGS, groups=GROUPS_SHOWN, start_s=period.start_s, length_s=length_s)
    budgets = rows("slo_daily", _BUDGETS, groups=GROUPS_SHOWN)
    with tables.at_hand("lag_minute", period.has) as lag_minute:
        skewed = rows("skew_minute", _SKEWED, lag_minute=lag_minute, target=target, groups=GROUPS_SHOWN)
    capacities, rates_watched = _capacities(tables, period)
    return Findings(
        period=period,
        target_seconds=target,
        objective=objective,
        heard_from_s=first_s,
        heard_until_s=until_s,
        days=[DayTotal(*row) for row in rows("slo_daily", _DAYS)],
        days_before=[DayTotal(*row) for row in tables.rows("slo_daily", period.before.has, _DAYS, {})],
        groups=groups,
        lags=[GroupLag._make((*row, [LagPoint(*each) for each in points])) for *row, points in lags],
        incidents=longest[:INCIDENTS_SHOWN],
        open_incidents=[incident for incident in longest if incident.ended_at is None],
        incident_totals=IncidentTotals(*next(iter(incidents(_INCIDENT_TOTALS)), (0, 0, 0))),
        flapping=[Flapping(*row) for row in incidents(_FLAPPING, incidents=INCIDENTS_SHOWN)],
        hours=[Hours(*row) for row in rows("status_intervals", _HOURS, groups=GROUPS_SHOWN)],
        skewed=[Skewed(*row) for row in skewed],
        skew_watched=AnsweredTopics(*next(iter(rows("skew_minute", _SKEW_WATCHED)), (0, 0))),
        capacities=capacities,
        rates_watched=rates_watched,
        budgets=[Budget._make((*row, [DayBurn(*each) for each in days])) for *row, days in budgets],
        quarantined=Quarantined(*next(iter(rows("quarantine", _QUARANTINED)), (0, 0))),
        unknown=unknown,
    )


def _capacities(tables: TablesAtOneTime, period: DayRange) -> tuple[list[Capacity], AnsweredTopics]:
    """Return the consumers whose best consume rate is nearest to the peak produce rate of the last day.

    Peaks of less than one message per second are left out, because such peaks show nothing about capacity. A query
    takes one day, because each partition has a rate per five minutes.
    """
    best: dict[tuple[str, str, str], float] = {}
    days: dict[tuple[str, str, str], list[DayPeak]] = {}
    for day in tables.days("rates_minute", period.has):
        for cluster, consumer, topic, produced, consumed in tables.rows("rates_minute", day.__eq__, _RATES, {}):
            days.setdefault((cluster, consumer, topic), []).append(DayPeak(day, produced))
            if consumed is not None:
                best[cluster, consumer, topic] = max(consumed, best.get((cluster, consumer, topic), 0.0))
    found = [Capacity(*key, rate, days[key]) for key, rate in best.items() if rate > 0 and days[key][-1].produced >= 1]
    found.sort(key=lambda one: (one.best / one.days[-1].produced, one[:3]))
    return found[:GROUPS_SHOWN], AnsweredTopics(len(days), len(best))
