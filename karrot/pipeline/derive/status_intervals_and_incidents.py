"""Derives ``status_intervals`` and ``incidents``, whose rows can last longer than a day, from verdicts.

Intervals depend on the days before and after. An incident can last any number of days. So that a run need not read the
runs of all days, a summary holds the state of each group at the beginning of a day: its open incident, its last verdict
and the ids of its incidents (`karrot.pipeline.derive.incidents.summary_runs`). A run reads the newest summary that is
older than the changed days, and all later runs. Without such a summary, a run reads the runs of all days.

The summaries are in a table of their own, `SUMMARIES`. The rows of a day stand for all runs until the end of this day,
and the name of their batch says for which ``silence`` they were made.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.derive.incidents import incidents, summary_runs, without_summary
from karrot.pipeline.derive.status_intervals import status_intervals
from karrot.pipeline.schemas_and_conversions import GROUP, SUMMARIES
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import persisted

_DAY: Final = timedelta(days=1)
_KEPT: Final = 8
"""How many summaries are kept. Late data of an older day needs the runs of all days."""

_KEYS: Final = (*GROUP, "key")
"""The columns that identify an incident, with `_key`."""


def derive_history(
    spark: SparkSession, tables: Tables, days: Sequence[date], *, silence: timedelta, unfinished: Collection[date] = ()
) -> None:
    """Derive both tables after ``verdict_runs`` of these days changed.

    A status holds for ``silence`` after its last verdict. A killed run may have changed ``unfinished`` days as well, so
    no summary with their runs is used.
    """
    if not any(tables.files(spark, name) for name in ("verdict_runs", "status_intervals", "incidents", SUMMARIES)):
        return  # all days have only commits
    there = tables.days(spark, "verdict_runs")
    summaries = _Summaries(spark, tables, silence, there)
    summaries.drop_after(min({*days, *unfinished}))
    # The first verdicts of a changed day may have been observed on the day before.
    since = summaries.newest(min(days) - _DAY)
    runs = summaries.with_runs(since)
    as_of = _newest(runs)
    targets, context = reach(days, there, silence)
    near = tables.read(spark, "verdict_runs", days=context)
    intervals = status_intervals(near, silence=silence, as_of=as_of)
    tables.replace_days(intervals.where(F.col("day").isin(sorted(targets))), "status_intervals", targets)
    _replace_incidents(spark, tables, incidents(runs, silence=silence, as_of=as_of), summaries, since)
    summaries.write(since)


class _Summaries(NamedTuple):
    """The summaries of the tables, for one ``silence``. Only the holder of the lease of derived tables uses them.

    ``there`` are the sorted days of ``verdict_runs``.
    """

    spark: SparkSession
    tables: Tables
    silence: timedelta
    there: Sequence[date]

    def newest(self, until: date) -> date | None:
        return max((day for day in self._days() if day <= until), default=None)

    def drop_after(self, day: date) -> None:
        """Drop the summaries of later days, and those for another ``silence``."""
        files = self.tables.files(self.spark, SUMMARIES)
        drop = {file.day for file in files if file.day >= day or file.batch_id != self._batch_id}
        self.tables.drop_days(self.spark, SUMMARIES, drop)

    def with_runs(self, since: date | None, until: date | None = None) -> DataFrame:
        """Read the summary of the day ``since``, and the runs from ``since`` to before ``until``.

        Without ``since``, read the runs of all days. A group without a verdict since the oldest day is left out,
        because ``compact`` has dropped its runs.
        """
        days = [day for day in self.there if (since is None or day >= since) and (until is None or day < until)]
        runs = without_summary(self.tables.read(self.spark, "verdict_runs", days=days))
        if since is None:
            return runs
        oldest = datetime.combine(min(self.there, default=since), time(), UTC)
        return self._read(since).where(F.col("last_at") >= F.lit(oldest)).unionByName(runs)

    def nameless(self, since: date) -> DataFrame:
        """Return day and `_KEYS` of the incidents without an id that were open when the day ``since`` began."""
        is_open = (F.col("kind") == "incident") & F.col("incident_id").isNull()
        started = self._read(since).where(is_open).withColumn("started_at", F.col("first_at"))
        return started.withColumn("key", _key()).select(F.to_date("started_at").alias("day"), *_KEYS)

    def write(self, since: date | None) -> None:
        """Write the summary with which the next runs begin: the runs before the day before the newest."""
        day, known = max(self.there, default=date.max) - _DAY, self._days()
        if min(self.there, default=day) >= day or any(each >= day for each in known):
            return
        summary = summary_runs(self.with_runs(since, until=day), silence=self.silence, day=day)
        self.tables.replace_days(summary, SUMMARIES, [day - _DAY], batch_id=self._batch_id)
        self.tables.drop_days(self.spark, SUMMARIES, {each - _DAY for each in known[: 1 - _KEPT]})

    @property
    def _batch_id(self) -> str:
        return f"silence-{self.silence // timedelta(milliseconds=1)}ms"

    def _days(self) -> list[date]:
        """The days that follow the last runs of the summaries."""
        return [day + _DAY for day in self.tables.days(self.spark, SUMMARIES)]

    def _read(self, day: date) -> DataFrame:
        return self.tables.read(self.spark, SUMMARIES, days=[day - _DAY])


def reach(days: Collection[date], existing: Sequence[date], silence: timedelta) -> tuple[set[date], set[date]]:
    """The days whose intervals may differ, and the days with events that these intervals depend on.

    Both sets include the nearest earlier day and the nearest later day that have events. They also include all days
    that a verdict of these days can cover: a verdict is valid for the duration ``silence``.
    """
    lasting = range(1, silence // _DAY + 2)
    targets = _with_nearest(days, existing) | {day - _DAY for day in days}
    targets |= {day + number * _DAY for day in days for number in lasting}
    before = {day - number * _DAY for day in targets for number in lasting}
    return targets, _with_nearest(targets, existing) | before & {*existing}


def _replace_incidents(
    spark: SparkSession, tables: Tables, computed: DataFrame, summaries: _Summaries, since: date | None
) -> None:
    """Replace the incidents that can differ, but write only days whose rows differ.

    With ``since``, these are the incidents of this day and later days, and those that were open at its beginning: each
    of them is ``computed``, or it had no id and may have got one since.
    """
    with persisted(computed.withColumn("key", _key())) as now:
        if since is None:
            changed = _differing(now, tables.read(spark, "incidents").withColumn("key", _key()))
            if changed:
                tables.replace_days(now.where(F.col("day").isin(changed)), "incidents", changed)
            return
        open_then = now.where(F.col("day") < F.lit(since)).select("day", *_KEYS).unionByName(summaries.nameless(since))
        with persisted(open_then.distinct()) as could_change:
            touched = could_change.select("day").unionByName(now.select("day")).distinct().collect()
            days = {row.day for row in touched} | {day for day in tables.days(spark, "incidents") if day >= since}
            marks = could_change.select(*_KEYS, F.lit(True).alias("can_differ")).distinct()
            stored = tables.read(spark, "incidents", days=days).withColumn("key", _key())
            marked = stored.join(F.broadcast(marks), list(_KEYS), "left")
            can_differ = (F.col("day") >= F.lit(since)) | F.coalesce("can_differ", F.lit(False))
            before, others = (marked.where(each).select(*stored.columns) for each in (can_differ, ~can_differ))
            changed = _differing(now, before)
            if changed:
                tables.replace_days(now.unionByName(others).where(F.col("day").isin(changed)), "incidents", changed)


def _differing(rows: DataFrame, others: DataFrame) -> list[date]:
    both = rows.withColumn("times", F.lit(1)).unionByName(others.withColumn("times", F.lit(-1)))
    differing = both.groupBy(*rows.columns).agg(F.sum("times").alias("times")).where(F.col("times") != 0)
    return [row.day for row in differing.select("day").distinct().collect()]


def _key() -> Column:
    """Return the key of an incident in its group: its id or, without an id, its start."""
    start = F.unix_micros("started_at").cast("string")
    return F.coalesce(F.concat(F.lit("id "), "incident_id"), start)


def _newest(runs: DataFrame) -> datetime:
    """Return the time of the newest verdict of any group; the history uses this time as "now".

    A verdict of a clock that was ahead would end the incidents of all other groups, so it is left out.
    """
    newest: datetime | None
    ((newest,),) = runs.where(F.col("last_at") <= F.current_timestamp()).agg(F.max("last_at")).collect()
    return datetime.fromtimestamp(0, UTC) if newest is None else newest.astimezone(UTC)


def _with_nearest(days: Collection[date], existing: Sequence[date]) -> set[date]:
    earlier = {max((one for one in existing if one < day), default=day) for day in days}
    later = {min((one for one in existing if one > day), default=day) for day in days}
    return {*days, *earlier, *later}
