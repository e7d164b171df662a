"""Derives ``partition_lag_minute`` and ``rebalances`` from commits, log ends and members.

A partition has lag even while the group commits nothing. So a day begins with the newest commits and owners of the days
before, and the lag in seconds also uses the log-end samples of the day before. Each day leaves a mark: a hash of the
rows that the next day needs. If the mark differs from the mark of the last run, the next day is derived again.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.derive.lag_minute import as_listings, filled, unheard
from karrot.pipeline.derive.lag_seconds import all_samples
from karrot.pipeline.derive.partition_lag_minute import FORGOTTEN, carried, partition_lag_minute
from karrot.pipeline.derive.rebalances import group_records, newest, owners, rebalances, topics_read
from karrot.pipeline.schemas_and_conversions import GROUP, OFFSETS
from karrot.pipeline.store.table_files import Tables, digest
from karrot.pipeline.stream.streaming_queries import persisted

_DAY = timedelta(days=1)
_MADE = ("partition_lag_minute", "rebalances")
_SAMPLED = ("ends", "partitions")
_MEMBERS_BACK = timedelta(days=30)


class DayHandover(NamedTuple):
    """What a day passes to the next day: the ``mark`` of what the next day needs, and sample counts.

    ``head`` and ``tail`` count the samples of partitions near the day's first and its last midnight.
    """

    mark: str = ""
    head: int = 0
    tail: int = 0


@dataclass(frozen=True, slots=True)
class PartitionLagJob:
    """The job: derives days of ``partition_lag_minute`` and ``rebalances``, one after another."""

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
        # Whatever is computed within a group needs no other shuffle.
        return listings.unionByName(as_listings(lags), allowMissingColumns=True).repartition(*GROUP)

    def _derive(self, day: date) -> DayHandover:
        members = self._read("members", self._days_until("members", day, _MEMBERS_BACK))
        nearest_before = self._days_until("partition_lag_minute", day - _DAY, FORGOTTEN)[-1:]
        before = carried(self._read("partition_lag_minute", nearest_before))
        with persisted(group_records(members, day)) as records:
            self.tables.replace_days(rebalances(records).where(F.col("day") == F.lit(day)), "rebalances", [day])
            lags = partition_lag_minute(
                self._read("commits", [day]),
                before,
                self._samples([day - _DAY, day]),
                owners(records),
                topics_read(records),
                since=datetime.combine(day, time(), UTC),
                longest=self.longest,
            )
            self.tables.replace_days(lags, "partition_lag_minute", [day])
            return self._handed(day, newest(records))

    def _samples(self, days: Collection[date]) -> DataFrame:
        return all_samples(*(self._read(name, days) for name in _SAMPLED))

    def _read(self, name: str, days: Collection[date]) -> DataFrame:
        return self.tables.read(self.spark, name, days=days)

    def _with_any(self, names: Collection[str]) -> list[date]:
        return sorted({day for name in names for day in self.tables.days(self.spark, name)})

    def _days_until(self, name: str, last: date, back: timedelta) -> list[date]:
        return [day for day in self.tables.days(self.spark, name) if last - back <= day <= last]

    def _handed(self, day: date, assigned: DataFrame) -> DayHandover:
        lags, margin = self._read("partition_lag_minute", [day]), F.lit(self.longest)
        midnight = F.lit(datetime.combine(day, time(), UTC))
        edges = lags.select(
            F.count_if(F.col("as_of") < midnight + margin).alias("head"),
            F.count_if(F.col("as_of") >= midnight + F.lit(_DAY) - margin).alias("tail"),
        )
        sampled = (file for name in _SAMPLED for file in self.tables.files(self.spark, name) if file.day == day)
        one_row = _mark(carried(lags)).crossJoin(_mark(assigned)).crossJoin(edges)
        commits, owned, head, tail = one_row.collect()[0]
        return DayHandover(f"{commits}-{owned}-{digest(file.path for file in sampled)}", head, tail)


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


def _mark(frame: DataFrame) -> DataFrame:
    """Hash the rows into one number. The order of the rows does not matter; other rows give another number."""
    return frame.select(F.coalesce(F.bit_xor(F.xxhash64(*frame.columns)), F.lit(0)).alias("mark"))
