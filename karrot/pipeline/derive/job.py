"""Rewrites, in every derived table, the days whose sources changed.

Minute tables and the daily SLO depend only on their own day. The rates also depend on the minutes next to the day's two
midnights. `karrot.pipeline.derive.status_intervals_and_incidents` derives the tables whose rows can last longer than a
day.

The running day of the tables in `PIECES` has four pieces. A piece depends on its sources until shortly after its end.
So new rows change only the pieces that are not earlier, and a run rewrites the end of the day and not all of it. A run
that derives all of a past day makes it one piece, because small files cost time.

The run reads the streamed tables at the versions that they have when it begins. When it ends, it writes the versions of
the derived tables into the note, so that readers of several tables see the tables of one run.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial, reduce
from typing import Final, NamedTuple

import structlog
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from karrot.history.days_with_data import Derived, Note
from karrot.pipeline.derive.day_pieces import DAY_HOURS, HOUR, Pieces, is_in, piece_digests, replace_pieces
from karrot.pipeline.derive.lag_minute import group_lags, lag_minute, merged, spread
from karrot.pipeline.derive.lag_seconds import by_hindsight, is_inexact
from karrot.pipeline.derive.rates_minute import rates_minute, whole_listings
from karrot.pipeline.derive.skew_minute import skew_minute
from karrot.pipeline.derive.slo_daily import Objective, slo_daily
from karrot.pipeline.derive.status_intervals import verdict_runs
from karrot.pipeline.derive.status_intervals_and_incidents import derive_history
from karrot.pipeline.derive.tables_from_commits import DayHandover, PartitionLagJob
from karrot.pipeline.schemas_and_conversions import DERIVED, LOG, OFFSETS, PIECE_HOURS, UNIQUE_BY
from karrot.pipeline.store.table_files import (
    SOURCES,
    WATCHED,
    Tables,
    by_day,
    changed_days,
    digest,
    read_note,
    write_note,
)

_DAY: Final = timedelta(days=1)
_VERSION: Final = 2
"""The version of the rules in this code. If it changes, ``derive`` makes every day again."""

_AT_ONCE: Final = 8
"""How many days one Spark job derives."""


_log = structlog.get_logger(__name__)


class DeriveRules(NamedTuple):
    """The settings of a derivation.

    ``silence`` is how long a verdict holds (the service's ``KARROT_STALE_AFTER``). ``longest`` is the longest gap
    between two samples of a partition that still gives a rate.
    """

    silence: timedelta = timedelta(seconds=300)
    longest: timedelta = timedelta(seconds=600)
    objective: Objective = Objective()

    def __str__(self) -> str:
        """Return the rules as a string for the note. No number is rounded, so other rules give another string."""
        target, share = self.objective
        times = f"silence {self.silence}, longest {self.longest}"
        return f"version {_VERSION}, {times}, {share!r} of minutes within {target!r} s"


def derive(
    spark: SparkSession,
    tables: Tables,
    rules: DeriveRules,
    *,
    only: Collection[date] = (),
    on_progress: Callable[[str], object] = _log.info,
) -> list[date]:
    """Derive the days whose files changed since the last run, or ``only`` the given days. Return the derived days.

    Of a day, only the pieces are derived that depend on changed files.

    An interrupted run has replaced days in some tables and not in others. So before the first replacement, the note
    lists these days as unfinished, and the next run derives them again. ``incidents`` is written last, so a reader must
    not report "no incidents" for an unfinished day. Until a run ends, the note keeps the versions of the run before.
    """
    tables = tables.keep(spark, WATCHED)
    note, files = read_note(spark, tables), by_day({name: tables.files(spark, name) for name in WATCHED})
    found = {day: digest(names) for day, names in files.items()}
    days = sorted(only) if only else changed_days(note, found, str(rules))
    if not days:
        return []
    nothing, before = Derived(""), note.days | note.unfinished
    others = {day: derived for day, derived in note.days.items() if day not in days}
    begun = note.unfinished | {day: before.get(day, nothing) for day in days}
    write_note(spark, tables, Note(note.rules, others, begun, note.versions))
    done = _derive_days(
        spark, tables, rules, note, days=days, files=files, is_partial=bool(only), on_progress=on_progress
    )
    on_progress("deriving intervals and incidents")
    derive_history(spark, tables, sorted(done), silence=rules.silence, unfinished=begun)
    finished = {day: each for day, each in (note.days | done).items() if day in found or day not in done}
    unfinished = {day: each for day, each in note.unfinished.items() if day not in done}
    # With `only`, keep the old rules in the note: the days outside `only` were derived by the old rules. The days that
    # are still unfinished do not belong to the other days of the newest versions.
    is_partial = unfinished or (only and note.versions and not note.rules)  # a deleted table has only these days
    newest = note.versions if is_partial else tables.newest(spark, DERIVED)
    write_note(spark, tables, Note(note.rules if only and before else str(rules), finished, unfinished, newest))
    return sorted(done)


def _derive_days(
    spark: SparkSession,
    tables: Tables,
    rules: DeriveRules,
    note: Note,
    *,
    days: Collection[date],
    files: Mapping[date, Collection[str]],
    is_partial: bool,
    on_progress: Callable[[str], object],
) -> dict[date, Derived]:
    """Derive the tables whose rows end at midnight, and return the new state of each derived day.

    ``files`` are all files by day. If the commits with which a day begins changed, this day is derived in addition,
    unless the run ``is_partial``.
    """
    nothing, before, running = Derived(""), note.days | note.unfinished, max(files, default=None)
    # A piece can be kept only if the last run finished its day by the same rules.
    finished = note.days if str(rules) == note.rules and not is_partial else {}
    lags = PartitionLagJob(spark, tables, rules.longest)
    sources = _look_over(spark, tables, days, files, rules.longest)
    digests = {day: sources.digests(day, files.get(day, ()), rules.longest) for day in days}
    begins = {
        day: next((hour for hour, each in of_day.items() if finished.get(day, nothing).pieces.get(hour) != each), 0)
        for day, of_day in digests.items()
    }
    marks = None if is_partial else {day: derived.mark for day, derived in before.items()}
    handed = lags.derive(begins, marks, running)
    if added := handed.keys() - begins.keys():
        sources = _look_over(spark, tables, [*days, *added], files, rules.longest)
        digests |= {day: sources.digests(day, files[day], rules.longest) for day in added}
    todo, done = dict[date, Pieces](), dict[date, Derived]()
    for day in sorted(digests):
        names, given = files.get(day, ()), handed.get(day, DayHandover(begins=begins.get(day, 0)))
        # Commits and log ends give lag to a group only if no event of the whole day lists the group's partitions. Its
        # coverage depends on all partitions of the day.
        sizes = "" if {*SOURCES} & _tables_of(names) else given.sizes
        is_whole = day in handed and (not sizes or sizes != finished.get(day, nothing).sizes)
        todo[day] = Pieces.of(day, 0 if is_whole else given.begins, running)
        edges = (sources.heads[day] + given.head, sources.tails[day] + given.tail)
        pieces = {} if todo[day].is_one else digests[day]
        done[day] = Derived(digest(names) if names else "", *edges, given.mark, pieces, sizes)
    for first in range(0, len(todo), _AT_ONCE):
        some = [*todo.values()][first : first + _AT_ONCE]
        on_progress(f"deriving {some[0].day} to {some[-1].day}")
        _derive_pieces(sources, lags, rules, some)
    # These pieces have a midnight with changed samples on its other side.
    reach = min(DAY_HOURS, -(rules.longest // -(PIECE_HOURS * HOUR)) * PIECE_HOURS)
    earlier = (day - _DAY for day, each in done.items() if each.head != before.get(day, nothing).head)
    later = (day + _DAY for day, each in done.items() if each.tail != before.get(day, nothing).tail)
    beside = [*(Pieces(day, DAY_HOURS - reach) for day in earlier), *(Pieces(day, 0, reach) for day in later)]
    if kept := {
        each if (note.days | done).get(each.day, nothing).pieces else Pieces(each.day, is_one=True)
        for each in beside
        if each.day in files and (each.day not in todo or each.begins < todo[each.day].begins)
    }:
        _derive_rates(sources, lags, rules, kept)
    return done


def _tables_of(names: Iterable[str]) -> set[str]:
    return {name.partition("/")[0] for name in names}


@dataclass(frozen=True, slots=True)
class _Sources:
    """The tables ``events`` and ``partitions``, with what `_look_over` found.

    ``first_ms`` is the time of the first row of each day and batch (``table/batch_id``). ``heads`` and ``tails`` count
    each day's listed partitions near its first and its last midnight. ``inexact`` are the days on which a lag in
    seconds may be known better from later data. ``polled`` has a hash of the polled partitions of each day with polls
    and listed partitions.
    """

    spark: SparkSession
    tables: Tables
    first_ms: Mapping[tuple[date, str], int]
    repeating: frozenset[str]
    heads: Counter[date]
    tails: Counter[date]
    inexact: frozenset[date]
    polled: Mapping[date, str]

    def digests(self, day: date, names: Collection[str], longest: timedelta) -> dict[int, str]:
        """Return the `piece_digests` of a day with these files.

        A rate depends on the next sample, and the log end of a commit on the sample after the commit. Which log ends
        of verdicts count depends on the polls of the whole day.
        """
        polled = [f"polled/{self.polled[day]}"] if day in self.polled else []
        margin = longest * (2 if OFFSETS & _tables_of(names) else 1)
        return piece_digests(day, [*names, *polled], self.first_ms, margin)

    def read(self, name: str, days: Collection[date]) -> DataFrame:
        rows = self.tables.read(self.spark, name, days=days)
        return rows.dropDuplicates(UNIQUE_BY[name]) if name in self.repeating else rows


def _look_over(
    spark: SparkSession,
    tables: Tables,
    days: Collection[date],
    files: Mapping[date, Collection[str]],
    margin: timedelta,
) -> _Sources:
    """Read the sequence numbers of these days once, and count those within ``margin`` of each midnight.

    Samples near a midnight also change the rates of the next or the previous day. To derive these days, their
    neighbours are read too. Delivery to the archive is at-least-once, but duplicates are rare. A batch holds no event
    twice. If no two batches overlap in sequence numbers, there is no duplicate to remove. That saves a shuffle of every
    row.
    """
    at, midnight = F.col("received_at"), F.col("day").cast("timestamp")
    around = _with_neighbours(_with_neighbours(days)) & files.keys()
    of_events = (
        tables.read(spark, name, days=around, batches=True).select(
            F.lit(name).alias("table"),
            "day",
            "log_id",
            "batch_id",
            "seq",
            # Also the lags in seconds of earlier events use a log end that came late.
            F.unix_millis(F.least("received_at", "observed_at")).alias("at_ms"),
            (at < midnight + F.lit(margin)).alias("head"),
            (at >= midnight + F.lit(_DAY - margin)).alias("tail"),
            (is_inexact() if name == "events" else F.lit(False)).alias("inexact"),
        )
        for name in SOURCES
    )
    of_kafka = (
        tables.read(spark, name, days=days, batches=True).select(
            F.lit(name).alias("table"),
            "day",
            "batch_id",
            F.col("observed_at_ms" if name == "ends" else "log_ts_ms").alias("at_ms"),
        )
        for name in OFFSETS
    )
    seen = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), (*of_events, *of_kafka))
    earlier = Window.partitionBy("table", "log_id").orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    spans = seen.groupBy("table", "day", "log_id", "batch_id").agg(
        F.min("seq").alias("first"),
        F.max("seq").alias("last"),
        F.min("at_ms").alias("first_ms"),
        F.count_if("head").alias("head"),
        F.count_if("tail").alias("tail"),
        F.bool_or("inexact").alias("inexact"),
    )
    found = spans.withColumn("overlaps", F.col("first") <= F.max("last").over(earlier)).collect()
    heads, tails, first_ms = Counter[date](), Counter[date](), dict[tuple[date, str], int]()
    for row in found:
        place = row.day, f"{row.table}/{row.batch_id}"
        first_ms[place] = min(row.first_ms, first_ms.get(place, row.first_ms))
        if row.table == "partitions":
            heads[row.day] += row.head
            tails[row.day] += row.tail
    repeating = frozenset(row.table for row in found if row.overlaps)
    inexact = frozenset(row.day for row in found if row.inexact)
    mixed = [day for day in days if {"ends", "partitions"} <= _tables_of(files.get(day, ()))]
    logs = tables.read(spark, "ends", days=mixed).select("day", F.xxhash64(*LOG).alias("log")).distinct()
    hashed = logs.groupBy("day").agg(F.bit_xor("log").alias("polled")).collect() if mixed else []
    polled = {row.day: str(row.polled) for row in hashed}
    return _Sources(spark, tables, first_ms, repeating, heads, tails, inexact, polled)


def _derive_pieces(sources: _Sources, lags: PartitionLagJob, rules: DeriveRules, pieces: Sequence[Pieces]) -> None:
    """Derive the last pieces of different days. The days' ``partition_lag_minute`` must exist already."""
    spark, tables, days = sources.spark, sources.tables, [each.day for each in pieces]
    all_events, all_partitions = (sources.read(name, days) for name in SOURCES)
    is_heard = any(file.day in days for name in ("events", "verdict_runs") for file in tables.files(spark, name))
    in_pieces = is_in(pieces, "received_at") if any(each.begins for each in pieces) else F.lit(True)
    events, partitions = all_events.where(in_pieces), all_partitions.where(in_pieces)
    listings, timed = whole_listings(events, partitions), events
    if not sources.inexact.isdisjoint(days):
        timed = by_hindsight(events, all_events, all_partitions, sources.read("ends", days), longest=rules.longest)

    def derive_lag_and_slo(measured: DataFrame | None) -> None:
        lag = lag_minute(timed) if measured is None else merged(lag_minute(timed), group_lags(measured))
        replace_pieces(tables, lag, "lag_minute", pieces)
        lags_of_partitions = all_partitions
        if measured is not None:
            of_commits = lags.unheard(listings, days).withColumn("current_lag", F.col("lag"))
            lags_of_partitions = all_partitions.unionByName(of_commits, allowMissingColumns=True)
        minutes = tables.read(spark, "lag_minute", days=days)
        tables.replace_days(slo_daily(minutes, lags_of_partitions, rules.objective), "slo_daily", days)

    def derive_skew(measured: DataFrame | None) -> None:
        skew = skew_minute(listings)
        if measured is not None:
            skew = skew.unionByName(skew_minute(spread(measured), of="partitions"))
        replace_pieces(tables, skew, "skew_minute", pieces)

    def derive_runs() -> None:
        if not is_heard:
            return
        begins = {each.day: each.begins for each in pieces}
        files = [file for file in tables.files(spark, "verdict_runs") if file.piece < begins.get(file.day, 0)]
        earlier = tables.read_files(spark, "verdict_runs", files) if files else None
        runs = verdict_runs(events, partitions, silence=rules.silence, earlier=earlier)
        replace_pieces(tables, runs, "verdict_runs", pieces)

    with lags.measured(listings, pieces) as measured:
        jobs = (
            partial(derive_lag_and_slo, measured),
            partial(derive_skew, measured),
            derive_runs,
            partial(_derive_rates, sources, lags, rules, pieces),
        )
        # A job of few tasks leaves cores free, for example while it writes one file, so the jobs run at the same time.
        with ThreadPoolExecutor(len(jobs)) as pool:
            list(pool.map(lambda job: job(), jobs))


def _derive_rates(sources: _Sources, lags: PartitionLagJob, rules: DeriveRules, pieces: Collection[Pieces]) -> None:
    around, near = _with_neighbours([each.day for each in pieces]), is_in(pieces, "received_at", rules.longest)
    events, partitions = (sources.read(name, around).where(near) for name in SOURCES)
    samples = lags.listings(whole_listings(events, partitions), around).where(near)
    rates = rates_minute(samples, longest=rules.longest).where(is_in(pieces, "minute"))
    replace_pieces(sources.tables, rates, "rates_minute", pieces)


def _with_neighbours(days: Collection[date]) -> set[date]:
    return {day + offset for day in days for offset in (-_DAY, timedelta(0), _DAY)}
