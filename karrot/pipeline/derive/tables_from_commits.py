"""Derives ``partition_lag_minute`` and ``rebalances`` from commits, log ends and members.

A partition has lag even while the group commits nothing. So a day begins with the newest commits and owners of the days
before, and the lag in seconds also uses the log-end samples of the day before. Each day leaves a mark: a hash of the
rows that the next day needs. If the mark differs from the mark of the last run, the next day is derived again.

A run derives the last pieces of a day, and begins with the newest commits of the pieces before. No row of
``partition_lag_minute`` depends on anything that is more than ``longest`` later.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.derive.day_pieces import Pieces, is_in, replace_pieces
from karrot.pipeline.derive.lag_minute import as_listings, filled, topic_sizes, unheard
from karrot.pipeline.derive.lag_seconds import all_samples
from karrot.pipeline.derive.partition_lag_minute import FORGOTTEN, carried, partition_lag_minute
from karrot.pipeline.derive.rebalances import group_records, newest, owners, rebalances, topics_read
from karrot.pipeline.schemas_and_conversions import GROUP, OFFSETS
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import persisted

_DAY = timedelta(days=1)
_MADE = ("partition_lag_minute", "rebalances")
_SAMPLED = ("ends", "partitions")
_MEMBERS_BACK = timedelta(days=30)


class DayHandover(NamedTuple):
    """What a day passes to the next day: the ``mark`` of what the next day needs, and sample counts.

    ``head`` and ``tail`` count the samples of partitions near the day's first and its last midnight. ``begins`` is the
    hour from which on the day was derived, and ``sizes`` a hash of the numbers of partitions of its topics.
    """

    mark: str = ""
    head: int = 0
    tail: int = 0
    begins: int = 0
    sizes: str = ""


@dataclass(frozen=True, slots=True)
class PartitionLagJob:
    """The job: derives days of ``partition_lag_minute`` and ``rebalances``, one after another."""

    spark: SparkSession
    tables: Tables
    longest: timedelta

    def derive(
        self, begins: Mapping[date, int], before: Mapping[date, str] | None, running: date | None
    ) -> dict[date, DayHandover]:
        """Derive these days from the hours ``begins`` on. If ``before`` is given, also derive the days of `hand_on`.

        Return each day's handover.
        """
        existing = self._with_any(OFFSETS)
        asked = begins.keys() & {*existing, *self._with_any(_MADE)}

        def derive_day(day: date, is_whole: bool) -> DayHandover:  # noqa: FBT001 (called by `hand_on` alone)
            return self._derive(Pieces.of(day, 0 if is_whole else begins[day], running))

        return hand_on(asked, existing, before, derive_day)

    @contextmanager
    def measured(self, listings: DataFrame, pieces: Collection[Pieces]) -> Iterator[DataFrame | None]:
        """Yield the `filled` lags of groups without whole ``listings``, or ``None`` if these pieces have no lags."""
        days = {each.day for each in pieces} & {*self.tables.days(self.spark, "partition_lag_minute")}
        if not days:
            yield None
            return
        is_near = is_in(pieces, "minute", self.longest)
        held = filled(self.unheard(listings, days), self._samples(days), self.longest, is_near)
        with persisted(held.where(is_in(pieces, "minute"))) as rows:
            yield rows

    def unheard(self, listings: DataFrame, days: Collection[date]) -> DataFrame:
        """Return the rows of ``partition_lag_minute`` of groups without whole ``listings``."""
        return unheard(self._read("partition_lag_minute", days), listings)

    def listings(self, listings: DataFrame, days: Collection[date]) -> DataFrame:
        """Return the samples for the rates of these days: the whole ``listings``, and commits for other groups."""
        there = {*days} & {*self.tables.days(self.spark, "partition_lag_minute")}
        if not there:
            return listings
        lags = self.unheard(listings, there)
        # Whatever is computed within a group needs no other shuffle.
        return listings.unionByName(as_listings(lags), allowMissingColumns=True).repartition(*GROUP)

    def _derive(self, pieces: Pieces) -> DayHandover:
        day = pieces.day
        members = self._read("members", self._days_until("members", day, _MEMBERS_BACK))
        nearest_before = self._days_until("partition_lag_minute", day - _DAY, FORGOTTEN)[-1:]
        files = self.tables.files(self.spark, "partition_lag_minute")
        of_day = [each for each in files if each.day == day and each.piece < pieces.begins]
        earlier = [*of_day, *(each for each in files if each.day in nearest_before)]
        with persisted(group_records(members, day)) as records:
            self.tables.replace_days(rebalances(records).where(F.col("day") == F.lit(day)), "rebalances", [day])
            lags = partition_lag_minute(
                self._read("commits", [day]).where(F.col("log_ts") >= F.lit(pieces.since)),
                carried(self.tables.read_files(self.spark, "partition_lag_minute", earlier)),
                self._samples([day - _DAY, day]),
                owners(records),
                topics_read(records),
                since=pieces.since,
                longest=self.longest,
            )
            replace_pieces(self.tables, lags, "partition_lag_minute", [pieces])
            return self._handed(pieces, newest(records))

    def _samples(self, days: Collection[date]) -> DataFrame:
        return all_samples(*(self._read(name, days) for name in _SAMPLED))

    def _read(self, name: str, days: Collection[date]) -> DataFrame:
        return self.tables.read(self.spark, name, days=days)

    def _with_any(self, names: Collection[str]) -> list[date]:
        return sorted({day for name in names for day in self.tables.days(self.spark, name)})

    def _days_until(self, name: str, last: date, back: timedelta) -> list[date]:
        return [day for day in self.tables.days(self.spark, name) if last - back <= day <= last]

    def _handed(self, pieces: Pieces, assigned: DataFrame) -> DayHandover:
        lags, margin = self._read("partition_lag_minute", [pieces.day]), F.lit(self.longest)
        midnight, samples = F.lit(datetime.combine(pieces.day, time(), UTC)), self._samples([pieces.day])
        edges = lags.select(
            F.count_if(F.col("as_of") < midnight + margin).alias("head"),
            F.count_if(F.col("as_of") >= midnight + F.lit(_DAY) - margin).alias("tail"),
        )
        # Not the names of files: `compact` changes them.
        handed = (carried(lags), assigned, samples, topic_sizes(lags, samples))
        *marks, head, tail = reduce(DataFrame.crossJoin, [*map(_mark, handed), edges]).collect()[0]
        return DayHandover("-".join(map(str, marks[:-1])), head, tail, pieces.begins, str(marks[-1]))


def hand_on(
    days: Collection[date],
    existing: Collection[date],
    before: Mapping[date, str] | None,
    derive: Callable[[date, bool], DayHandover],
) -> dict[date, DayHandover]:
    """Derive ``days`` in order. If a day's mark differs from its mark in ``before``, derive the next existing day too.

    That day is derived as a whole. If ``before`` is ``None``, only ``days`` are derived.
    """
    waiting, whole, done = {*days}, set[date](), dict[date, DayHandover]()
    while waiting:
        day = min(waiting)
        waiting.remove(day)
        done[day] = derive(day, day in whole)
        if before is not None and done[day].mark != before.get(day, ""):
            whole |= {min((later for later in existing if later > day), default=day)} - done.keys()
            waiting |= whole - done.keys()
    return done


def _mark(frame: DataFrame) -> DataFrame:
    """Hash the rows into one number. The order of the rows does not matter; other rows give another number."""
    # Two equal rows cancel each other out in `bit_xor`, so the number of rows counts too.
    return frame.select(F.xxhash64(F.bit_xor(F.xxhash64(*frame.columns)), F.count(F.lit(1))).alias("mark"))
