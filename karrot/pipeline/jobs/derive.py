"""``karrot pipeline derive``: the days whose events changed, rewritten in every table that is reckoned from them.

Minute tables and the daily SLO depend on one day alone (rates on the minutes next to its midnights, too); intervals on
the days beside it. Incidents may span any number of days: they are found again in the runs of all days, which are few,
and the days on which that makes a difference are rewritten.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from itertools import islice
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from karrot.pipeline.incidents import incidents
from karrot.pipeline.rates import rates_minute, whole_listings
from karrot.pipeline.rollup import lag_minute
from karrot.pipeline.skew import skew_minute
from karrot.pipeline.slo import Objective, slo_daily
from karrot.pipeline.statuses import status_intervals, verdict_runs
from karrot.pipeline.tables import Tables
from karrot.pipeline.touched import Derived, Note, present, read_note, touched, write_note

__all__ = ["Rules", "derive"]

_log = logging.getLogger(__name__)

_AT_ONCE = 8
_DAY = timedelta(days=1)
_Days = Collection[date]


class Rules(NamedTuple):
    """What the tables are derived by.

    ``silence`` is how long a verdict holds (the service's ``KARROT_STALE_AFTER``), ``longest`` how far apart two looks
    at a partition may be to tell what was produced between them.
    """

    silence: timedelta = timedelta(seconds=300)
    longest: timedelta = timedelta(seconds=600)
    objective: Objective = Objective()

    def __str__(self) -> str:
        """The rules as the note keeps them."""
        target, share = self.objective
        return f"silence {self.silence}, longest {self.longest}, {share:g} of minutes within {target:g} s"


def derive(
    spark: SparkSession,
    tables: Tables,
    rules: Rules,
    *,
    only: _Days = (),
    on_progress: Callable[[str], object] = _log.info,
) -> list[date]:
    """Derive the days whose files changed since the last time, or ``only`` some days; return which.

    Interrupted, it has replaced some tables' days and not others; the next run does those days again.
    """
    note, found = read_note(spark, tables), present(spark, tables)
    days = sorted(only) if only else touched(note, found, str(rules))
    if not days:
        return []
    edges: dict[date, tuple[int, int]] = {}
    for chunk in _chunks(days):
        on_progress(f"deriving {chunk[0]} to {chunk[-1]}")
        edges |= _derive_days(spark, tables, rules, chunk)
    midnights = _beside_changed_midnights(note, days, edges) & found.keys()
    for chunk in _chunks(sorted({*days, *midnights})):
        _derive_rates(spark, tables, rules, chunk)
    on_progress("deriving intervals and incidents")
    _derive_intervals(spark, tables, rules, days)
    _derive_incidents(spark, tables, rules)
    done = {day: Derived(found[day], *edges.get(day, (0, 0))) for day in days if day in found}
    kept = {day: derived for day, derived in note.days.items() if day not in days}
    # A few days by other rules: what is noted stays, so that the rest is known to be of the old ones.
    write_note(spark, tables, Note(note.rules if only and note.days else str(rules), kept | done))
    return days


def _derive_days(spark: SparkSession, tables: Tables, rules: Rules, days: _Days) -> dict[date, tuple[int, int]]:
    """The tables that depend on a day alone. Returns each day's looks at partitions beside its two midnights."""
    events, partitions = _once(tables, spark, "events", days), _once(tables, spark, "partitions", days)
    tables.replace_days(lag_minute(events), "lag_minute", days)
    tables.replace_days(slo_daily(events, partitions, rules.objective), "slo_daily", days)
    tables.replace_days(verdict_runs(events, partitions, silence=rules.silence), "verdict_runs", days)
    tables.replace_days(skew_minute(whole_listings(events, partitions)), "skew_minute", days)
    midnight = F.col("day").cast("timestamp")
    counted = partitions.groupBy("day").agg(
        F.count_if(F.col("received_at") < midnight + F.lit(rules.longest)).alias("head"),
        F.count_if(F.col("received_at") >= midnight + F.lit(_DAY - rules.longest)).alias("tail"),
    )
    return {row.day: (row.head, row.tail) for row in counted.collect()}


def _beside_changed_midnights(note: Note, days: _Days, edges: Mapping[date, tuple[int, int]]) -> set[date]:
    """The days whose first or last minutes look different, because a day beside them has other looks there."""
    nothing = Derived("")
    before = {day: note.days.get(day, nothing) for day in days}
    earlier = {day - _DAY for day in days if edges.get(day, (0, 0))[0] != before[day].head}
    later = {day + _DAY for day in days if edges.get(day, (0, 0))[1] != before[day].tail}
    return earlier | later


def _derive_rates(spark: SparkSession, tables: Tables, rules: Rules, days: Sequence[date]) -> None:
    around = {day + offset for day in days for offset in (-_DAY, timedelta(0), _DAY)}
    near = reduce(or_, (_near(day, rules.longest) for day in days))
    events = _once(tables, spark, "events", around).where(near)
    partitions = _once(tables, spark, "partitions", around).where(near)
    rates = rates_minute(whole_listings(events, partitions), longest=rules.longest)
    tables.replace_days(rates.where(F.col("day").isin(list(days))), "rates_minute", days)


def _near(day: date, margin: timedelta) -> Column:
    midnight = datetime.combine(day, time(), UTC)
    return F.col("received_at").between(midnight - margin, midnight + _DAY + margin)


def _derive_intervals(spark: SparkSession, tables: Tables, rules: Rules, days: Sequence[date]) -> None:
    """The intervals of the days, of those beside them and of their nearest days with events on both sides."""
    runs, existing = tables.read(spark, "verdict_runs"), tables.days(spark, "verdict_runs")
    targets = {*_with_nearest(days, existing), *(day + offset for day in days for offset in (-_DAY, _DAY))}
    context = _with_nearest(targets, existing)
    intervals = status_intervals(
        runs.where(F.col("day").isin(sorted(context))), silence=rules.silence, as_of=_newest(runs)
    )
    tables.replace_days(intervals.where(F.col("day").isin(sorted(targets))), "status_intervals", targets)


def _derive_incidents(spark: SparkSession, tables: Tables, rules: Rules) -> None:
    runs, before = tables.read(spark, "verdict_runs"), tables.read(spark, "incidents")
    now = incidents(runs, silence=rules.silence, as_of=_newest(runs)).persist()
    try:
        differing = now.exceptAll(before).select("day").union(before.exceptAll(now).select("day")).distinct()
        changed = [row.day for row in differing.collect()]
        if changed:
            tables.replace_days(now.where(F.col("day").isin(changed)), "incidents", changed)
    finally:
        now.unpersist()


def _once(tables: Tables, spark: SparkSession, name: str, days: _Days) -> DataFrame:
    """Whole days of a streamed table, no event twice.

    The archive is at least once, but mostly once: where no two batches overlap in sequence numbers (a batch holds none
    twice), nothing needs to be sorted out.
    """
    rows = tables.read(spark, name, batches=True).where(F.col("day").isin(sorted(days)))
    one_of = ["log_id", "seq"] if name == "events" else ["log_id", "seq", "topic", "partition"]
    return rows.dropDuplicates(one_of).drop("batch_id") if _overlapping(rows) else rows.drop("batch_id")


def _overlapping(rows: DataFrame) -> bool:
    spans = rows.groupBy("log_id", "batch_id").agg(F.min("seq").alias("first"), F.max("seq").alias("last"))
    ended = F.max("last").over(
        Window.partitionBy("log_id").orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    )
    return not spans.withColumn("ended", ended).where(F.col("first") <= F.col("ended")).isEmpty()


def _newest(runs: DataFrame) -> datetime:
    """The newest moment that any group was heard of: what "now" is to the history."""
    newest: datetime | None = runs.agg(F.max("last_at").alias("newest")).first()["newest"]  # type: ignore[index]
    return datetime.fromtimestamp(0, UTC) if newest is None else newest.astimezone(UTC)


def _with_nearest(days: _Days, existing: Sequence[date]) -> set[date]:
    earlier = {max((one for one in existing if one < day), default=day) for day in days}
    later = {min((one for one in existing if one > day), default=day) for day in days}
    return {*days, *earlier, *later}


def _chunks(days: Sequence[date]) -> Iterator[list[date]]:
    """A few days at a time: one job writes them together."""
    rest = iter(days)
    while chunk := list(islice(rest, _AT_ONCE)):
        yield chunk
