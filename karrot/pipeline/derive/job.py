"""Rewrites, in every derived table, the days whose sources changed.

Minute tables and the daily SLO depend only on their own day. The rates also depend on the minutes next to the day's two
midnights. `karrot.pipeline.derive.status_intervals_and_incidents` derives the tables whose rows can last longer than a
day.

A large day is split into parts, so that a run rewrites the end of the running day and not all of it. A day is one part
until it has `PART_ROWS` rows. Rows that come later than all derived rows then go to a new part. So no part is split
after it was written, and each file is replaced in one step:

```
<tables>/lag_minute/day=2026-11-20/lag_minute.parquet           from midnight
<tables>/lag_minute/day=2026-11-20/lag_minute-0830.parquet      from 08:30
```

The names of the files of ``verdict_runs`` say where the parts of a day begin.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial, reduce
from operator import or_
from typing import Final, NamedTuple

import structlog
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from karrot.history.days_with_data import Derived, Note
from karrot.pipeline.derive.lag_minute import group_lags, lag_minute, merged, spread
from karrot.pipeline.derive.lag_seconds import by_hindsight, is_inexact
from karrot.pipeline.derive.rates_minute import rates_minute, whole_listings
from karrot.pipeline.derive.skew_minute import skew_minute
from karrot.pipeline.derive.slo_daily import Objective, slo_daily
from karrot.pipeline.derive.status_intervals import verdict_runs
from karrot.pipeline.derive.status_intervals_and_incidents import derive_history
from karrot.pipeline.derive.tables_from_commits import DayHandover, PartitionLagJob
from karrot.pipeline.schemas_and_conversions import UNIQUE_BY
from karrot.pipeline.store.hadoop_filesystem import listing
from karrot.pipeline.store.table_files import (
    SOURCES,
    Tables,
    changed_days,
    digest,
    files_present,
    read_note,
    write_note,
)

PART_ROWS: Final = 2_000_000
"""A part with this number of rows of ``events`` and ``partitions`` gets no later rows, except late ones."""

_DAY_MINUTES: Final = 1_440
_STEP_MINUTES: Final = 10
_MINUTE: Final = timedelta(minutes=1)
_MINUTE_MS: Final = 60_000
_AT_ONCE: Final = 8
_RUNS_PER_MINUTE: Final = 1_000_000
_BEGINS: Final = re.compile(r"verdict_runs(?:-(\d\d)(\d\d))?\.parquet", re.ASCII)


class Part(NamedTuple):
    """A part of a day: from the minute ``begins`` until before the minute ``ends``."""

    day: date
    begins: int = 0
    ends: int = _DAY_MINUTES

    @property
    def is_whole(self) -> bool:
        return (self.begins, self.ends) == (0, _DAY_MINUTES)

    @property
    def is_last(self) -> bool:
        return self.ends == _DAY_MINUTES

    @property
    def since(self) -> datetime:
        return datetime.combine(self.day, time(), UTC) + self.begins * _MINUTE

    @property
    def until(self) -> datetime:
        return datetime.combine(self.day, time(), UTC) + self.ends * _MINUTE

    def file(self, table: str) -> str:
        hour, minute = divmod(self.begins, 60)
        return f"{table}-{hour:02}{minute:02}.parquet" if self.begins else f"{table}.parquet"


def is_in(parts: Iterable[Part], at: str, margin: timedelta = timedelta(0)) -> Column:
    """Whether a timestamp lies in one of these parts, or at most ``margin`` before or after it."""
    column = F.col(at)
    return reduce(
        or_, ((column >= F.lit(part.since - margin)) & (column < F.lit(part.until + margin)) for part in parts)
    )


def is_seen_by(parts: Sequence[Part], margin: timedelta) -> Column:
    """Whether an event of the days of these parts was received before the end of the day's part plus ``margin``."""
    day, at = F.col("day"), F.col("received_at")
    in_time = ((day == F.lit(part.day)) & (at < F.lit(part.until + margin)) for part in parts)
    return reduce(or_, in_time, F.lit(all(part.is_last for part in parts)))


def replace_parts(tables: Tables, rows: DataFrame, table: str, parts: Iterable[Part]) -> None:
    """Replace the files of the parts. If a day is whole, delete its other files, because the day may have had parts."""
    tables.replace_files(rows, table, {part.day: part.file(table) for part in parts})
    for part in parts:
        if part.is_whole:
            tables.drop_other_files(rows.sparkSession, table, part.day)


def chunks(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Distribute the parts, in order, over chunks. A chunk has at most eight parts, all of different days.

    One Spark job writes a chunk.
    """
    rest = sorted(parts)
    while rest:
        first_of_day = {part.day: part for part in reversed(rest)}
        chunk = sorted(first_of_day.values())[:_AT_ONCE]
        yield chunk
        rest = [part for part in rest if part not in chunk]


class DayLayout(NamedTuple):
    """The parts of a day in order. Each part has a digest of the files on which it depends.

    ``until`` is the first minute after all rows of the day.
    """

    digests: Mapping[Part, str]
    until: int

    @property
    def parts(self) -> list[Part]:
        return [*self.digests]

    @property
    def noted(self) -> dict[int, str]:
        """The digests for the note. A day of one part needs no digest: the note has the digest of all its files."""
        return {} if self.parts[0].is_whole else {part.begins: files for part, files in self.digests.items()}

    def changed(self, before: Derived | None) -> list[Part]:
        """Return the parts whose files changed since ``before``. If ``before`` is ``None``, return all parts."""
        known = {} if before is None else before.parts
        return [part for part, files in self.digests.items() if known.get(part.begins) != files]


class Layouts(NamedTuple):
    """Decides where the parts of days begin.

    ``batches`` are the batches of events and partitions on these days: rows with ``table``, ``day``, ``batch_id``,
    ``rows``, and ``first_ms`` and ``last_ms``, when the first and the last row was received. ``margin`` is how far
    beyond its end the tables of a part depend on events.
    """

    spark: SparkSession
    tables: Tables
    batches: Sequence[Row]
    margin: timedelta
    part_rows: int

    def of(self, day: date, files: Sequence[str], before: Derived | None, *, stays_whole: bool) -> DayLayout:
        """Split a day. ``files`` are the names of its source files, ``before`` is its last derivation.

        A day with commits or log ends must stay whole: they give lag to a group only if no event of the day lists the
        group's partitions.
        """
        batches = [batch for batch in self.batches if batch.day == day]
        until = max((batch.last_ms // _MINUTE_MS % _DAY_MINUTES + 1 for batch in batches), default=0)
        written = self._begins_written(day)
        begins = [0] if stays_whole else written or [0]
        if not stays_whole and sum(batch.rows for batch in batches) > self.part_rows * len(begins):
            # If the end of the derived time is unknown, the last part of the day is not split.
            free = before.until if before and before.until else _DAY_MINUTES if written else 0
            begins = split(begins, self._rows_by_step(day), free, self.part_rows)
        digests: dict[Part, str] = {}
        for part in parts_from(day, begins):
            # The part's rows can change with the files of all batches that are not later.
            end_ms = int((part.until + self.margin).timestamp() * 1000)
            later = {(each.table, each.batch_id) for each in batches if each.first_ms >= end_ms}
            digests[part] = digest(name for name in files if _batch_of(name) not in later)
        return DayLayout(digests, until)

    def written(self, day: date) -> list[Part]:
        """Return the parts of a day that the run writes. A day without files is one part."""
        return parts_from(day, self._begins_written(day) or [0])

    def _begins_written(self, day: date) -> list[int]:
        names = listing(self.spark, self.tables.path("verdict_runs", f"day={day.isoformat()}"))
        found = [found for name in names if (found := _BEGINS.fullmatch(name))]
        return sorted({0, *(60 * int(each[1] or 0) + int(each[2] or 0) for each in found)}) if found else []

    def _rows_by_step(self, day: date) -> dict[int, int]:
        """Count the rows received in each ten minutes of a day. The keys are the first minutes."""
        step_ms = _STEP_MINUTES * _MINUTE_MS
        step = F.floor(F.pmod(F.unix_millis("received_at"), F.lit(86_400_000)) / step_ms).alias("step")
        events, partitions = (self.tables.read(self.spark, name, days=[day]).select(step) for name in SOURCES)
        counted = events.unionByName(partitions).groupBy("step").agg(F.count(F.lit(1)).alias("rows")).collect()
        return {row.step * _STEP_MINUTES: row.rows for row in counted}


def parts_from(day: date, begins: Sequence[int]) -> list[Part]:
    """The parts of a day that begin at these minutes. The first one begins at 0."""
    return [Part(day, begin, end) for begin, end in zip(begins, [*begins[1:], _DAY_MINUTES], strict=True)]


def split(begins: Sequence[int], rows: Mapping[int, int], free: int, most: int) -> list[int]:
    """Add minutes to ``begins``, at which parts begin, so that no part grows after it has ``most`` rows.

    ``rows`` are the numbers of rows by minute, in steps. No new part begins before the minute ``free``.
    """
    made = list(begins)
    so_far = sum(count for minute, count in rows.items() if made[-1] <= minute < free)
    for minute in sorted(minute for minute in rows if minute >= max(free, made[-1])):
        if so_far >= most and minute > made[-1]:
            made.append(minute)
            so_far = 0
        so_far += rows[minute]
    return made


def _batch_of(file: str) -> tuple[str, str]:
    """Return the table and the batch from a path such as ``events/2026-11-20/batch_id=…/part-….parquet``."""
    table, _, *below = file.split("/")
    return table, below[0].removeprefix("batch_id=")


_log = structlog.get_logger(__name__)

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
        """Return the rules as a string for the note. No number is rounded, so other rules give another string."""
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
    # A part can be kept only if the last run finished its day by the same rules.
    finished = note.days if str(rules) == note.rules and not only else {}
    layout, done, parts = dict[date, DayLayout](), dict[date, Derived](), list[Part]()
    for day in days:
        names = files.get(day, ())
        stays_whole = day in handed or any(name.partition("/")[0] not in SOURCES for name in names)
        laid = layout[day] = layouts.of(day, names, before.get(day), stays_whole=stays_whole)
        parts += laid.changed(None if day in handed else finished.get(day))
        given = handed.get(day, DayHandover())
        edges = (sources.heads[day] + given.head, sources.tails[day] + given.tail)
        done[day] = Derived(found.get(day, ""), *edges, given.mark, laid.noted, laid.until)
    for chunk in chunks(parts):
        on_progress(f"deriving {chunk[0].day} to {chunk[-1].day}")
        _derive_parts(sources, lags, rules, chunk)

    def parts_of(day: date) -> list[Part]:
        return layout[day].parts if day in layout else layouts.written(day)

    # These parts have a midnight with changed samples on its other side.
    nothing = Derived("")
    beside = {parts_of(day - _DAY)[-1] for day, each in done.items() if each.head != before.get(day, nothing).head}
    beside |= {parts_of(day + _DAY)[0] for day, each in done.items() if each.tail != before.get(day, nothing).tail}
    for chunk in chunks(part for part in beside.difference(parts) if part.day in found):
        _derive_rates(sources, lags, rules, chunk)
    on_progress("deriving intervals and incidents")
    derive_history(spark, tables, days, silence=rules.silence, unfinished=begun)
    kept, unfinished = (
        {day: derived for day, derived in noted.items() if day not in layout} for noted in (note.days, note.unfinished)
    )
    kept |= {day: derived for day, derived in done.items() if day in found}
    # With `only`, keep the old rules in the note: the days outside `only` were derived by the old rules.
    write_note(spark, tables, Note(note.rules if only and before else str(rules), kept, unfinished))
    return days


@dataclass(frozen=True, slots=True)
class _Sources:
    """The tables ``events`` and ``partitions``, with what `_look_over` found.

    ``heads`` and ``tails`` count each day's listed partitions near its first and its last midnight. ``inexact`` are the
    days on which a lag in seconds may be known better from later data.
    """

    spark: SparkSession
    tables: Tables
    batches: Sequence[Row]
    repeating: frozenset[str]
    heads: Counter[date]
    tails: Counter[date]
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
    heads, tails = Counter[date](), Counter[date]()
    for row in found:
        if row.table == "partitions":
            heads[row.day] += row.head
            tails[row.day] += row.tail
    repeating = frozenset(row.table for row in found if row.overlaps)
    return _Sources(spark, tables, found, repeating, heads, tails, frozenset(row.day for row in found if row.inexact))


def _derive_parts(sources: _Sources, lags: PartitionLagJob, rules: DeriveRules, parts: Sequence[Part]) -> None:
    """Derive parts of different days. The days' ``partition_lag_minute`` must exist already.

    ``slo_daily`` is derived with the last part of a day.
    """
    tables, days = sources.tables, [part.day for part in parts]
    all_events, all_partitions = (sources.read(name, days) for name in SOURCES)
    in_parts = F.lit(True) if all(part.is_whole for part in parts) else is_in(parts, "received_at")
    events, partitions = all_events.where(in_parts), all_partitions.where(in_parts)
    listings, timed = whole_listings(events, partitions), events
    if not sources.inexact.isdisjoint(days):
        seen = is_seen_by(parts, rules.longest)
        polled = tables.read(sources.spark, "ends", days=days)
        timed = by_hindsight(events, all_events.where(seen), all_partitions.where(seen), polled, longest=rules.longest)

    def derive_lag_and_slo(measured: DataFrame | None) -> None:
        lag = lag_minute(timed) if measured is None else merged(lag_minute(timed), group_lags(measured))
        replace_parts(tables, lag, "lag_minute", parts)
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
        for part in (part for part in parts if part.begins):  # the runs of later parts have greater numbers
            before = F.when(F.col("day") == F.lit(part.day), part.begins * _RUNS_PER_MINUTE).otherwise(0)
            runs = runs.withColumn("run", F.col("run") + before.cast("bigint"))
        replace_parts(tables, runs, "verdict_runs", parts)

    with lags.measured(listings, days) as measured:
        jobs = (
            partial(derive_lag_and_slo, measured),
            partial(derive_skew, measured),
            derive_runs,
            partial(_derive_rates, sources, lags, rules, parts),
        )
        # A job of few tasks leaves cores free, for example while it writes one file, so the jobs run at the same time.
        with ThreadPoolExecutor(len(jobs)) as pool:
            list(pool.map(lambda job: job(), jobs))


def _derive_rates(sources: _Sources, lags: PartitionLagJob, rules: DeriveRules, parts: Sequence[Part]) -> None:
    around, near = _with_neighbours([part.day for part in parts]), is_in(parts, "received_at", rules.longest)
    events, partitions = (sources.read(name, around).where(near) for name in SOURCES)
    samples = lags.listings(whole_listings(events, partitions), around).where(near)
    rates = rates_minute(samples, longest=rules.longest)
    replace_parts(sources.tables, rates.where(is_in(parts, "minute")), "rates_minute", parts)


def _with_neighbours(days: Collection[date]) -> set[date]:
    return {day + offset for day in days for offset in (-_DAY, timedelta(0), _DAY)}
