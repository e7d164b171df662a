"""Rewrites, in every derived table, the days whose sources changed.

Minute tables and the daily SLO depend only on their own day. The rates also depend on the minutes next to the day's two
midnights. Intervals depend on the days before and after. An incident can last any number of days. So all incidents are
computed again from the verdict runs of all days, which have few rows. Only the days that differ are rewritten.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from itertools import islice
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from karrot.history.held_days import Derived, Note
from karrot.pipeline.derive.group_lag_from_commits import group_lags, merged, spread
from karrot.pipeline.derive.incidents import incidents
from karrot.pipeline.derive.lag_minute import lag_minute
from karrot.pipeline.derive.lag_seconds import by_hindsight
from karrot.pipeline.derive.offsets_lag_and_rebalances import DayHandover, MidnightEdges, PartitionLagJob
from karrot.pipeline.derive.rates_minute import rates_minute, whole_listings
from karrot.pipeline.derive.skew_minute import skew_minute
from karrot.pipeline.derive.slo_daily import Objective, slo_daily
from karrot.pipeline.derive.status_intervals import status_intervals, verdict_runs
from karrot.pipeline.schemas import UNIQUE_BY
from karrot.pipeline.store.table_files import SOURCES, Tables, changed_days, days_present, read_note, sound, write_note

_log = logging.getLogger(__name__)

_AT_ONCE = 8
_DAY = timedelta(days=1)


class DeriveRules(NamedTuple):
    """The settings of a derivation.

    ``silence`` is how long a verdict holds (the service's ``KARROT_STALE_AFTER``). ``longest`` is the longest gap
    between two samples of a partition that still gives a rate.
    """

    silence: timedelta = timedelta(seconds=300)
    longest: timedelta = timedelta(seconds=600)
    objective: Objective = Objective()

    def __str__(self) -> str:
        """The rules as text for the note of derived days. No number is rounded, so other rules give another text."""
        target, share = self.objective
        return f"silence {self.silence}, longest {self.longest}, {share!r} of minutes within {target!r} s"


def derive(
    spark: SparkSession,
    tables: Tables,
    rules: DeriveRules,
    *,
    only: Collection[date] = (),
    on_progress: Callable[[str], object] = _log.info,
) -> list[date]:
    """Derive the days whose files changed since the last run, or ``only`` the given days. Return the derived days.

    An interrupted run has replaced days in some tables and not in others. So before the first replacement, the note
    lists these days as unfinished, and the next run derives them again. ``incidents`` is written last, so a reader must
    not report "no incidents" for an unfinished day.
    """
    note, found = read_note(spark, tables), days_present(spark, tables)
    days = sorted(only) if only else changed_days(note, found, str(rules))
    if not days:
        return []
    before = note.days | note.unfinished
    others = {day: derived for day, derived in note.days.items() if day not in days}
    begun = note.unfinished | {day: before.get(day, Derived("")) for day in days}
    write_note(spark, tables, Note(note.rules, others, begun))
    lags = PartitionLagJob(spark, tables, rules.longest)
    handed = lags.derive(days, None if only else {day: derived.mark for day, derived in before.items()})
    days = sorted({*days, *handed})
    # Samples near a midnight also change the rates of the next or the previous day. To derive these days, read their
    # neighbours too.
    read = _with_neighbours(_with_neighbours(days)) & found.keys()
    sources = _look_over(spark, tables, read, rules.longest)
    for chunk in _chunks(days):
        on_progress(f"deriving {chunk[0]} to {chunk[-1]}")
        _derive_days(sources, lags, rules, chunk)
    edges = {}
    for day in days:
        of_events, of_commits = sources.edges.get(day, MidnightEdges()), handed.get(day, DayHandover()).edges
        edges[day] = MidnightEdges(of_events.head + of_commits.head, of_events.tail + of_commits.tail)
    midnights = _beside_changed_midnights(before, days, edges) & found.keys()
    for chunk in _chunks(sorted({*days, *midnights})):
        _derive_rates(sources, lags, rules, chunk)
    on_progress("deriving intervals and incidents")
    _derive_history(spark, tables, rules, days)
    done = {day: Derived(found[day], *edges[day], handed.get(day, DayHandover()).mark) for day in days if day in found}
    kept, unfinished = (
        {day: derived for day, derived in noted.items() if day not in days} for noted in (note.days, note.unfinished)
    )
    # With `only`, keep the old rules in the note: the days outside `only` were derived by the old rules.
    write_note(spark, tables, Note(note.rules if only and before else str(rules), kept | done, unfinished))
    return days


@dataclass(frozen=True, slots=True)
class _Sources:
    """The tables ``events`` and ``partitions``, with the `MidnightEdges` of the days that `_look_over` read."""

    spark: SparkSession
    tables: Tables
    repeating: frozenset[str]
    edges: Mapping[date, MidnightEdges]

    def read(self, name: str, days: Collection[date]) -> DataFrame:
        """Read whole days of a table, with each event once."""
        rows = self.tables.read(self.spark, name, days=days)
        return rows.dropDuplicates(UNIQUE_BY[name]) if name in self.repeating else rows


def _look_over(spark: SparkSession, tables: Tables, days: Collection[date], margin: timedelta) -> _Sources:
    """Read the sequence numbers of these days once, and count those within ``margin`` of each midnight.

    Delivery to the archive is at-least-once, but duplicates are rare. A batch holds no event twice. If no two batches
    overlap in sequence numbers, there is no duplicate to remove. That saves a shuffle of every row.
    """
    at, midnight = F.col("received_at"), F.col("day").cast("timestamp")
    beside_midnight = (
        (at < midnight + F.lit(margin)).alias("head"),
        (at >= midnight + F.lit(_DAY - margin)).alias("tail"),
    )
    seen = reduce(
        DataFrame.unionByName,
        (
            tables.read(spark, name, days=days, batches=True).select(
                F.lit(name).alias("table"), "day", "log_id", "batch_id", "seq", *beside_midnight
            )
            for name in SOURCES
        ),
    )
    earlier = Window.partitionBy("table", "log_id").orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    spans = seen.groupBy("table", "day", "log_id", "batch_id").agg(
        F.min("seq").alias("first"),
        F.max("seq").alias("last"),
        F.count_if("head").alias("head"),
        F.count_if("tail").alias("tail"),
    )
    found = (
        spans.withColumn("overlaps", F.col("first") <= F.max("last").over(earlier))
        .groupBy("table", "day")
        .agg(F.bool_or("overlaps").alias("repeats"), F.sum("head").alias("head"), F.sum("tail").alias("tail"))
        .collect()
    )
    edges = {row.day: MidnightEdges(row.head, row.tail) for row in found if row.table == "partitions"}
    return _Sources(spark, tables, frozenset(row.table for row in found if row.repeats), edges)


def _derive_days(sources: _Sources, lags: PartitionLagJob, rules: DeriveRules, days: Sequence[date]) -> None:
    """Derive the tables that depend only on their own day. The day's ``partition_lag_minute`` must exist already."""
    events, partitions, tables = sources.read("events", days), sources.read("partitions", days), sources.tables
    listings = whole_listings(events, partitions)
    polled = tables.read(sources.spark, "ends", days=days)
    timed = by_hindsight(events, partitions, polled, longest=rules.longest)
    lag, skew = lag_minute(timed), skew_minute(listings)
    with lags.measured(listings, days) as measured:
        listed = partitions
        if measured is not None:
            lag = merged(lag, group_lags(measured))
            skew = skew.unionByName(skew_minute(spread(measured), of="partitions"))
            listed = partitions.unionByName(spread(measured).drop("partitions"), allowMissingColumns=True)
        tables.replace_days(lag, "lag_minute", days)
        tables.replace_days(skew, "skew_minute", days)
        minutes = tables.read(sources.spark, "lag_minute", days=days)
        tables.replace_days(slo_daily(minutes, listed, rules.objective), "slo_daily", days)
    tables.replace_days(verdict_runs(events, partitions, silence=rules.silence), "verdict_runs", days)


def _beside_changed_midnights(
    before: Mapping[date, Derived], days: Sequence[date], edges: Mapping[date, MidnightEdges]
) -> set[date]:
    """The days whose first or last minutes change, because samples on the other side of midnight changed."""
    nothing = Derived("")
    earlier = {day - _DAY for day in days if edges.get(day, MidnightEdges()).head != before.get(day, nothing).head}
    later = {day + _DAY for day in days if edges.get(day, MidnightEdges()).tail != before.get(day, nothing).tail}
    return earlier | later


def _derive_rates(sources: _Sources, lags: PartitionLagJob, rules: DeriveRules, days: Sequence[date]) -> None:
    around, near = _with_neighbours(days), reduce(or_, (_near(day, rules.longest) for day in days))
    events, partitions = (sources.read(name, around).where(near) for name in SOURCES)
    samples = lags.listings(whole_listings(events, partitions), around).where(near)
    rates = rates_minute(samples, longest=rules.longest)
    sources.tables.replace_days(rates.where(F.col("day").isin(list(days))), "rates_minute", days)


def _near(day: date, margin: timedelta) -> Column:
    midnight = datetime.combine(day, time(), UTC)
    return F.col("received_at").between(midnight - margin, midnight + _DAY + margin)


def _derive_history(spark: SparkSession, tables: Tables, rules: DeriveRules, days: Sequence[date]) -> None:
    """Derive, from the runs of verdicts, the tables whose rows may last longer than a day."""
    runs = sound(tables.read(spark, "verdict_runs"))
    as_of = _newest(runs)
    targets, context = reach(days, tables.days(spark, "verdict_runs"), rules.silence)
    near = tables.read(spark, "verdict_runs", days=context)
    intervals = status_intervals(near, silence=rules.silence, as_of=as_of)
    tables.replace_days(intervals.where(F.col("day").isin(sorted(targets))), "status_intervals", targets)
    _replace_changed(spark, tables, incidents(runs, silence=rules.silence, as_of=as_of), "incidents")


def reach(days: Collection[date], existing: Sequence[date], silence: timedelta) -> tuple[set[date], set[date]]:
    """The days whose intervals may differ, and the days with events that these intervals depend on.

    Both sets include the nearest days with events before and after. They also include all days that such a
    verdict can still cover: it holds for ``silence``.
    """
    lasting = range(1, silence // _DAY + 2)
    targets = _with_nearest(days, existing) | {day - _DAY for day in days}
    targets |= {day + number * _DAY for day in days for number in lasting}
    before = {day - number * _DAY for day in targets for number in lasting}
    return targets, _with_nearest(targets, existing) | before & {*existing}


def _replace_changed(spark: SparkSession, tables: Tables, rows: DataFrame, name: str) -> None:
    """Replace a whole table, but write only the days whose rows differ."""
    now, before = rows.persist(), tables.read(spark, name)
    try:
        both = now.withColumn("times", F.lit(1)).unionByName(before.withColumn("times", F.lit(-1)))
        differing = both.groupBy(*now.columns).agg(F.sum("times").alias("times")).where(F.col("times") != 0)
        changed = [row.day for row in differing.select("day").distinct().collect()]
        if changed:
            tables.replace_days(now.where(F.col("day").isin(changed)), name, changed)
    finally:
        now.unpersist()


def _newest(runs: DataFrame) -> datetime:
    """The time of the newest verdict of any group, which the history uses as "now"."""
    newest: datetime | None
    ((newest,),) = runs.agg(F.max("last_at")).collect()
    return datetime.fromtimestamp(0, UTC) if newest is None else newest.astimezone(UTC)


def _with_neighbours(days: Collection[date]) -> set[date]:
    return {day + offset for day in days for offset in (-_DAY, timedelta(0), _DAY)}


def _with_nearest(days: Collection[date], existing: Sequence[date]) -> set[date]:
    earlier = {max((one for one in existing if one < day), default=day) for day in days}
    later = {min((one for one in existing if one > day), default=day) for day in days}
    return {*days, *earlier, *later}


def _chunks(days: Sequence[date]) -> Iterator[list[date]]:
    """Split the days into chunks. One Spark job writes a chunk."""
    rest = iter(days)
    while chunk := list(islice(rest, _AT_ONCE)):
        yield chunk
