"""Derives ``offsets_minute``, ``partition_lag_minute`` and ``rebalances`` from commits, log ends and members.

A partition has lag even while the group commits nothing. So a day begins with the newest commits and owners of the days
before, and the lag in seconds also uses the log-end samples of the day before. Each day leaves a mark: a hash of the
rows that the next day needs. If the mark differs from the mark of the last run, the next day is derived again.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from karrot.pipeline.derive.lag_minute import as_listings, filled, unheard
from karrot.pipeline.derive.lag_seconds import log_end_samples, sample_spans
from karrot.pipeline.derive.offsets_minute import offsets_minute
from karrot.pipeline.derive.partition_lag_minute import FORGOTTEN, carried, partition_lag_minute
from karrot.pipeline.derive.rebalances import group_records, newest, owners, rebalances
from karrot.pipeline.schemas_and_conversions import OFFSETS, UNIQUE_BY
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import persisted

_DAY = timedelta(days=1)
_MADE = ("offsets_minute", "partition_lag_minute", "rebalances")
_MEMBERS_BACK = timedelta(days=30)


class DayHandover(NamedTuple):
    """What a day passes to the next day: the ``mark`` of the rows that the next day needs, and sample counts.

    ``head`` and ``tail`` count the samples of partitions near the day's first and its last midnight.
    """

    mark: str = ""
    head: int = 0
    tail: int = 0


@dataclass(frozen=True, slots=True)
class PartitionLagJob:
    """The job: derives days of ``offsets_minute``, ``partition_lag_minute`` and ``rebalances``, one after another."""

    spark: SparkSession
    tables: Tables
    longest: timedelta

    def derive(self, days: Collection[date], before: Mapping[date, str] | None) -> dict[date, DayHandover]:
        """Derive these days and, if ``before`` is given, the days that `hand_on` adds. Return each day's handover."""
        existing = self._with_any(OFFSETS)
        asked = {*days} & {*existing, *self._with_any(_MADE)}
        return hand_on(asked, existing, before, self._derive)

    @contextmanager
    def measured(self, listings: DataFrame, days: Collection[date]) -> Iterator[DataFrame | None]:
        """Yield the `filled` lags of groups without whole ``listings``, or ``None`` if these days have no lags."""
        there = sorted({*days} & {*self.tables.days(self.spark, "partition_lag_minute")})
        if not there:
            yield None
            return
        lags = unheard(self._read("partition_lag_minute", there), listings)
        with persisted(filled(lags, self._samples(there), self.longest)) as rows:
            yield rows

    def listings(self, listings: DataFrame, days: Collection[date]) -> DataFrame:
        """Return the samples for the rates of these days: the whole ``listings``, and commits for other groups."""
        there = {*days} & {*self.tables.days(self.spark, "partition_lag_minute")}
        if not there:
            return listings
        lags = unheard(self._read("partition_lag_minute", there), listings)
        return listings.unionByName(as_listings(lags), allowMissingColumns=True)

    def _derive(self, day: date) -> DayHandover:
        commits = _no_record_twice(self.tables.read(self.spark, "commits", days=[day], batches=True))
        self.tables.replace_days(offsets_minute(commits), "offsets_minute", [day])
        members = self._read("members", self._days_until("members", day, _MEMBERS_BACK))
        nearest_before = self._days_until("partition_lag_minute", day - _DAY, FORGOTTEN)[-1:]
        before = carried(self._read("partition_lag_minute", nearest_before))
        seen, midnight_ms = self._samples([day - _DAY, day]), int(datetime.combine(day, time(), UTC).timestamp()) * 1000
        spans = sample_spans(seen, self.longest).withColumn("is_of_day", F.col("at_ms") >= midnight_ms)
        with persisted(spans) as ends, persisted(group_records(members, day)) as records:
            self.tables.replace_days(rebalances(records).where(F.col("day") == F.lit(day)), "rebalances", [day])
            lags = partition_lag_minute(commits, before, ends, owners(records), longest=self.longest)
            self.tables.replace_days(lags, "partition_lag_minute", [day])
            return self._handed(day, ends.where("is_of_day"), newest(records))

    def _samples(self, days: Collection[date]) -> DataFrame:
        return log_end_samples(*(self._read(name, days) for name in ("ends", "partitions")))

    def _read(self, name: str, days: Collection[date]) -> DataFrame:
        return self.tables.read(self.spark, name, days=days)

    def _with_any(self, names: Collection[str]) -> list[date]:
        return sorted({day for name in names for day in self.tables.days(self.spark, name)})

    def _days_until(self, name: str, last: date, back: timedelta) -> list[date]:
        return [day for day in self.tables.days(self.spark, name) if last - back <= day <= last]

    def _handed(self, day: date, ends: DataFrame, assigned: DataFrame) -> DayHandover:
        lags, margin = self._read("partition_lag_minute", [day]), F.lit(self.longest)
        midnight = F.lit(datetime.combine(day, time(), UTC))
        edges = lags.select(
            F.count_if(F.col("as_of") < midnight + margin).alias("head"),
            F.count_if(F.col("as_of") >= midnight + F.lit(_DAY) - margin).alias("tail"),
        )
        handed = (carried(lags), ends.drop("next_ms", "next_offset"), assigned)
        marks = reduce(DataFrame.unionByName, (_mark(each, place) for place, each in enumerate(handed)))
        mark = "-".join(str(row.mark) for row in sorted(marks.collect()))
        return DayHandover(mark, *edges.collect()[0])


def hand_on(
    days: Collection[date],
    existing: Collection[date],
    before: Mapping[date, str] | None,
    derive: Callable[[date], DayHandover],
) -> dict[date, DayHandover]:
    """Derive ``days`` in order. If a day's mark differs from its mark in ``before``, derive the next existing day too.

    If ``before`` is ``None``, only ``days`` are derived.
    """
    waiting, done = {*days}, dict[date, DayHandover]()
    while waiting:
        day = min(waiting)
        waiting.remove(day)
        done[day] = derive(day)
        if before is not None and done[day].mark != before.get(day, ""):
            waiting |= {min((later for later in existing if later > day), default=day)} - done.keys()
    return done


def _no_record_twice(commits: DataFrame) -> DataFrame:
    """Remove repeated records from commits that were read with their ``batch_id``.

    Duplicates can exist only where batches overlap in offsets, so the shuffle happens only then.
    """
    log = ("cluster", "log_partition")
    earlier = Window.partitionBy(*log).orderBy("first", "last").rowsBetween(Window.unboundedPreceding, -1)
    batches = commits.groupBy(*log, "batch_id").agg(
        F.min("log_offset").alias("first"), F.max("log_offset").alias("last"), F.count(F.lit(1)).alias("rows")
    )
    overlaps = F.col("first") <= F.max("last").over(earlier)
    too_many = F.col("rows") > F.col("last") - F.col("first") + 1
    several = batches.select((overlaps | too_many).alias("several")).where("several").limit(1).collect()
    return commits.dropDuplicates(UNIQUE_BY["commits"]) if several else commits


def _mark(frame: DataFrame, place: int) -> DataFrame:
    """Hash the rows into one number. The order of the rows does not matter; other rows give another number."""
    mark = F.coalesce(F.bit_xor(F.xxhash64(*frame.columns)), F.lit(0))
    return frame.select(F.lit(place).alias("place"), mark.alias("mark"))
