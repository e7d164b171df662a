"""Rewrites, in every derived table, the days whose sources changed.

Minute tables and the daily SLO depend only on their own day. The rates also depend on the minutes next to the day's two
midnights. `karrot.pipeline.derive.verdict_history` derives intervals and incidents, which can last longer than a day.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial, reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from karrot.history.held_days import Derived, Note
from karrot.pipeline.derive.lag_minute import group_lags, lag_minute, merged, spread
from karrot.pipeline.derive.lag_seconds import by_hindsight, is_inexact
from karrot.pipeline.derive.offsets_lag_and_rebalances import DayHandover, MidnightEdges, PartitionLagJob
from karrot.pipeline.derive.rates_minute import rates_minute, whole_listings
from karrot.pipeline.derive.skew_minute import skew_minute
from karrot.pipeline.derive.slo_daily import Objective, slo_daily
from karrot.pipeline.derive.status_intervals import verdict_runs
from karrot.pipeline.derive.verdict_history import derive_history
from karrot.pipeline.schemas import UNIQUE_BY
from karrot.pipeline.store.day_parts import (
    IN_PARTS,
    PART_ROWS,
    Batch,
    DayLayout,
    Layouts,
    Part,
    chunks,
    is_in,
    is_of_events,
    numbered_by_day,
    received_in,
    received_until,
    replace_parts,
)
from karrot.pipeline.store.table_files import (
    SOURCES,
    Tables,
    changed_days,
    digest,
    files_present,
    read_note,
    write_note,
)

_log = logging.getLogger(__name__)

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
    part_rows: int = PART_ROWS,
    on_progress: Callable[[str], object] = _log.info,
) -> list[date]:
    """Derive the days whose files changed since the last run, or ``only`` the given days. Return the derived days.

    A day with more than ``part_rows`` rows has several parts, and only changed parts are derived.

    An interrupted run has replaced days in some tables and not in others. So before the first replacement, the note
    lists these days as unfinished, and the next run derives them again. ``incidents`` is written last, so a reader must
    not report "no incidents" for an unfinished day.
    """
    note, files = read_note(spark, tables), files_present(spark, tables)
    found = {day: digest(names) for day, names in files.items()}
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
    layouts = Layouts(spark, tables, sources.batches, rules.longest, part_rows)
    layout = {
        day: layouts.of(
            day,
            files.get(day, ()),
            before.get(day),
            stays_whole=day in handed or not all(map(is_of_events, files.get(day, ()))),
        )
        for day in days
    }
    # A part can only be as before if the last run finished its day, by the same rules.
    finished = note.days if str(rules) == note.rules and not only else {}
    parts = [part for day in days for part in layout[day].changed(None if day in handed else finished.get(day))]
    for chunk in chunks(parts):
        on_progress(f"deriving {chunk[0].day} to {chunk[-1].day}")
        _derive_parts(sources, lags, rules, chunk)
    edges = {day: sources.edges.get(day, MidnightEdges()).plus(handed.get(day, DayHandover()).edges) for day in days}
    beside = _beside_changed_midnights(
        before, edges, lambda day: layout[day].parts if day in layout else layouts.written(day)
    )
    for chunk in chunks(part for part in beside.difference(parts) if part.day in found):
        _derive_rates(sources, lags, rules, chunk)
    _drop_parts_of_whole_days(layouts, layout)
    on_progress("deriving intervals and incidents")
    derive_history(spark, tables, days, silence=rules.silence, unfinished=begun)
    done = {
        day: Derived(
            found[day], *edges[day], handed.get(day, DayHandover()).mark, layout[day].files_by_part, layout[day].until
        )
        for day in found.keys() & layout.keys()
    }
    kept, unfinished = (
        {day: derived for day, derived in noted.items() if day not in layout} for noted in (note.days, note.unfinished)
    )
    # With `only`, keep the old rules in the note: the days outside `only` were derived by the old rules.
    write_note(spark, tables, Note(note.rules if only and before else str(rules), kept | done, unfinished))
    return days


def _drop_parts_of_whole_days(layouts: Layouts, layout: Mapping[date, DayLayout]) -> None:
    """Delete the files of the later parts of each day that is one part now."""
    for day, each in layout.items():
        if each.parts[0].is_whole and not layouts.written(day)[0].is_whole:
            for name in IN_PARTS:
                layouts.tables.drop_other_files(layouts.spark, name, day)


@dataclass(frozen=True, slots=True)
class _Sources:
    """The tables ``events`` and ``partitions``, with what `_look_over` found.

    ``edges`` counts the listed partitions. ``inexact`` are the days on which a lag in seconds may be known better from
    later data.
    """

    spark: SparkSession
    tables: Tables
    batches: Sequence[Batch]
    repeating: frozenset[str]
    edges: Mapping[date, MidnightEdges]
    inexact: frozenset[date]

    def read(self, name: str, days: Collection[date]) -> DataFrame:
        rows = self.tables.read(self.spark, name, days=days)
        return rows.dropDuplicates(UNIQUE_BY[name]) if name in self.repeating else rows


def _look_over(spark: SparkSession, tables: Tables, days: Collection[date], margin: timedelta) -> _Sources:
    """Read the sequence numbers of these days once, and count those within ``margin`` of each midnight.

    Delivery to the archive is at-least-once, but duplicates are rare. A batch holds no event twice. If no two batches
    overlap in sequence numbers, there is no duplicate to remove. That saves a shuffle of every row.
    """
    at, midnight = F.col("received_at"), F.col("day").cast("timestamp")
    seen = reduce(
        DataFrame.unionByName,
        (
            tables.read(spark, name, days=days, batches=True).select(
                F.lit(name).alias("table"),
                "day",
                "log_id",
                "batch_id",
                "seq",
                F.unix_millis("received_at").alias("at_ms"),
                (at < midnight + F.lit(margin)).alias("head"),
                (at >= midnight + F.lit(_DAY - margin)).alias("tail"),
                (is_inexact() if name == "events" else F.lit(False)).alias("inexact"),
            )
            for name in SOURCES
        ),
    )
    earlier = Window.partitionBy("table", "log_id").orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    spans = seen.groupBy("table", "day", "log_id", "batch_id").agg(
        F.min("seq").alias("first"),
        F.max("seq").alias("last"),
        F.count(F.lit(1)).alias("rows"),
        F.min("at_ms").alias("first_ms"),
        F.max("at_ms").alias("last_ms"),
        F.count_if("head").alias("head"),
        F.count_if("tail").alias("tail"),
        F.bool_or("inexact").alias("inexact"),
    )
    found = spans.withColumn("overlaps", F.col("first") <= F.max("last").over(earlier)).collect()
    edges: dict[date, MidnightEdges] = {}
    for row in found:
        if row.table == "partitions":
            head, tail = edges.get(row.day, MidnightEdges())
            edges[row.day] = MidnightEdges(head + row.head, tail + row.tail)
    return _Sources(
        spark,
        tables,
        [Batch(row.table, row.day, row.batch_id, row.rows, row.first_ms, row.last_ms) for row in found],
        frozenset(row.table for row in found if row.overlaps),
        edges,
        frozenset(row.day for row in found if row.inexact),
    )


def _derive_parts(sources: _Sources, lags: PartitionLagJob, rules: DeriveRules, parts: Sequence[Part]) -> None:
    """Derive parts of different days. The days' ``partition_lag_minute`` must exist already.

    ``slo_daily`` is derived with the last part of a day.
    """
    tables, days = sources.tables, [part.day for part in parts]
    all_events, all_partitions = (sources.read(name, days) for name in SOURCES)
    events, partitions = received_in(all_events, parts), received_in(all_partitions, parts)
    listings = whole_listings(events, partitions)
    timed = events
    if not sources.inexact.isdisjoint(days):
        seen, listed = (received_until(rows, parts, rules.longest) for rows in (all_events, all_partitions))
        polled = tables.read(sources.spark, "ends", days=days)
        timed = by_hindsight(events, seen, listed, polled, longest=rules.longest)

    def derive_lag_and_slo(measured: DataFrame | None) -> None:
        lag = lag_minute(timed) if measured is None else merged(lag_minute(timed), group_lags(measured))
        replace_parts(tables, lag, "lag_minute", parts)
        for part in parts:
            if part.is_whole:  # the day may have been in parts until now, and its minutes are read below
                tables.drop_other_files(sources.spark, "lag_minute", part.day)
        if ended := [part.day for part in parts if part.is_last]:
            lags_of_partitions = all_partitions
            if measured is not None:
                of_commits = spread(measured).drop("partitions")
                lags_of_partitions = all_partitions.unionByName(of_commits, allowMissingColumns=True)
            of_days = lags_of_partitions.where(F.col("day").isin(ended))
            minutes = tables.read(sources.spark, "lag_minute", days=ended)
            tables.replace_days(slo_daily(minutes, of_days, rules.objective), "slo_daily", ended)

    def derive_skew(measured: DataFrame | None) -> None:
        skew = skew_minute(listings)
        if measured is not None:
            skew = skew.unionByName(skew_minute(spread(measured), of="partitions"))
        replace_parts(tables, skew, "skew_minute", parts)

    def derive_runs() -> None:
        runs = verdict_runs(events, partitions, silence=rules.silence)
        replace_parts(tables, numbered_by_day(runs, parts), "verdict_runs", parts)

    with lags.measured(listings, days) as measured:
        _at_once(
            sources.spark,
            partial(derive_lag_and_slo, measured),
            partial(derive_skew, measured),
            derive_runs,
            partial(_derive_rates, sources, lags, rules, parts),
        )


def _at_once(spark: SparkSession, *jobs: Callable[[], object]) -> None:
    """Run jobs at the same time. A job of few tasks leaves cores free, for example while it writes one file.

    If a job fails, this raises its error after the other jobs have ended.
    """
    with ThreadPoolExecutor(len(jobs)) as pool:
        running = [pool.submit(job) for job in jobs]
        try:
            for each in running:
                each.result()
        except KeyboardInterrupt:
            spark.sparkContext.cancelAllJobs()
            raise


def _beside_changed_midnights(
    before: Mapping[date, Derived], edges: Mapping[date, MidnightEdges], parts_of: Callable[[date], Sequence[Part]]
) -> set[Part]:
    """The parts whose first or last minutes change, because samples on the other side of midnight changed."""
    nothing = Derived("")
    earlier = {parts_of(day - _DAY)[-1] for day, each in edges.items() if each.head != before.get(day, nothing).head}
    later = {parts_of(day + _DAY)[0] for day, each in edges.items() if each.tail != before.get(day, nothing).tail}
    return earlier | later


def _derive_rates(sources: _Sources, lags: PartitionLagJob, rules: DeriveRules, parts: Sequence[Part]) -> None:
    around, near = _with_neighbours([part.day for part in parts]), is_in(parts, "received_at", rules.longest)
    events, partitions = (sources.read(name, around).where(near) for name in SOURCES)
    samples = lags.listings(whole_listings(events, partitions), around).where(near)
    rates = rates_minute(samples, longest=rules.longest)
    replace_parts(sources.tables, rates.where(is_in(parts, "minute")), "rates_minute", parts)


def _with_neighbours(days: Collection[date]) -> set[date]:
    return {day + offset for day in days for offset in (-_DAY, timedelta(0), _DAY)}
