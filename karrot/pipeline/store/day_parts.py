"""Splits large days into parts of a bounded size, so that a run rewrites the end of the running day and not all of it.

A day is one part until it has `PART_ROWS` rows of ``events`` and ``partitions``. Rows that come later than all derived
rows then go to a new part. So no part is split after it was written, and each file is replaced in one step:

```
<tables>/lag_minute/day=2026-11-20/lag_minute.parquet           from midnight
<tables>/lag_minute/day=2026-11-20/lag_minute-0830.parquet      from 08:30
```

The names of the files of ``verdict_runs`` say where the parts of a day begin.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.history.held_days import Derived
from karrot.pipeline.store.filesystem import listing
from karrot.pipeline.store.table_files import SOURCES, Tables, digest

PART_ROWS: Final = 2_000_000
"""A part with this number of rows of ``events`` and ``partitions`` gets no later rows, except late ones."""

IN_PARTS: Final = ("lag_minute", "skew_minute", "rates_minute", "verdict_runs")
"""The tables that have a file for each part of a day."""

_DAY_MINUTES: Final = 1_440
_STEP_MINUTES: Final = 10
_MINUTE: Final = timedelta(minutes=1)
_MINUTE_MS: Final = 60_000
_AT_ONCE: Final = 8
_RUNS_PER_MINUTE: Final = 1_000_000
_BEGINS: Final = re.compile(r"verdict_runs(?:-(\d\d)(\d\d))?\.parquet", re.ASCII)


class Part(NamedTuple):
    """The time of a day from the minute ``begins`` to the minute ``ends``, which is not included."""

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
    moment = F.col(at)
    return reduce(
        or_, ((moment >= F.lit(part.since - margin)) & (moment < F.lit(part.until + margin)) for part in parts)
    )


def received_in(rows: DataFrame, parts: Collection[Part]) -> DataFrame:
    return rows if all(part.is_whole for part in parts) else rows.where(is_in(parts, "received_at"))


def received_until(rows: DataFrame, parts: Collection[Part], margin: timedelta) -> DataFrame:
    """The rows of the parts' days that were received before the end of the part, or at most ``margin`` after it."""
    if all(part.is_last for part in parts):
        return rows
    at, day = F.col("received_at"), F.col("day")
    return rows.where(reduce(or_, ((day == F.lit(part.day)) & (at < F.lit(part.until + margin)) for part in parts)))


def numbered_by_day(runs: DataFrame, parts: Collection[Part]) -> DataFrame:
    """Give the verdict ``runs`` of parts greater numbers than those of the day's earlier parts."""
    numbers = F.col("run")
    for part in parts:
        if part.begins:
            before = F.lit(part.begins * _RUNS_PER_MINUTE).cast("bigint")
            numbers = F.when(F.col("day") == F.lit(part.day), F.col("run") + before).otherwise(numbers)
    return runs.withColumn("run", numbers)


def replace_parts(tables: Tables, rows: DataFrame, table: str, parts: Iterable[Part]) -> None:
    tables.replace_files(rows, table, {part.day: part.file(table) for part in parts})


def chunks(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Distribute the parts over chunks, which keep their order. A chunk has at most eight parts, each of another day.

    One Spark job writes a chunk.
    """
    rest = sorted(parts)
    while rest:
        chunk: dict[date, Part] = {}
        later = []
        for part in rest:
            if len(chunk) == _AT_ONCE or part.day in chunk:
                later.append(part)
            else:
                chunk[part.day] = part
        yield [*chunk.values()]
        rest = later


class Batch(NamedTuple):
    """What a batch has on a day: its number of rows, and when the first and the last was received (epoch ms)."""

    table: str
    day: date
    name: str
    rows: int
    first_ms: int
    last_ms: int


class DayLayout(NamedTuple):
    """The ``parts`` of a day in order, and for each one a digest of the ``files`` on which it depends, by ``begins``.

    ``until`` is the first minute after all rows of the day.
    """

    parts: Sequence[Part]
    files: Mapping[int, str]
    until: int

    @property
    def files_by_part(self) -> dict[int, str]:
        """The digests for the note. A day of one part needs none, because the note has the digest of all its files."""
        return {} if self.parts[0].is_whole else dict(self.files)

    def changed(self, before: Derived | None) -> list[Part]:
        """The parts that depend on other files than ``before``. Without ``before``, all parts."""
        known = {} if before is None else before.parts
        return [part for part in self.parts if known.get(part.begins) != self.files[part.begins]]


class Layouts(NamedTuple):
    """Decides where the parts of days begin.

    ``batches`` are the batches of events and partitions on these days. ``margin`` is how far beyond its end the tables
    of a part depend on events.
    """

    spark: SparkSession
    tables: Tables
    batches: Sequence[Batch]
    margin: timedelta
    part_rows: int

    def of(self, day: date, files: Sequence[str], before: Derived | None, *, stays_whole: bool) -> DayLayout:
        """Split a day. ``files`` are the names of its source files, ``before`` is its last derivation.

        A day with commits or log ends must stay whole: they give lag to a group only if no event of the day lists the
        group's partitions.
        """
        batches = [batch for batch in self.batches if batch.day == day]
        until = max((batch.last_ms // _MINUTE_MS % _DAY_MINUTES + 1 for batch in batches), default=0)
        begins = [0] if stays_whole else self._written(day) or [0]
        if not stays_whole and sum(batch.rows for batch in batches) > self.part_rows * len(begins):
            # Unless it is known how far the day was derived, its last part stays as it is.
            free = before.until if before and before.until else _DAY_MINUTES if self._written(day) else 0
            begins = split(begins, self._rows_by_step(day), free, self.part_rows)
        parts = parts_from(day, begins)
        return DayLayout(parts, {part.begins: self._depends_on(part, batches, files) for part in parts}, until)

    def written(self, day: date) -> list[Part]:
        """The parts of a day that are written. A day without files is one part."""
        return parts_from(day, self._written(day) or [0])

    def _written(self, day: date) -> list[int]:
        names = listing(self.spark, self.tables.path("verdict_runs", f"day={day.isoformat()}"))
        found = [found for name in names if (found := _BEGINS.fullmatch(name))]
        return sorted({0, *(60 * int(each[1] or 0) + int(each[2] or 0) for each in found)}) if found else []

    def _depends_on(self, part: Part, batches: Sequence[Batch], files: Sequence[str]) -> str:
        """A digest of the files with which the part's rows can change: those of all batches that are not later."""
        end_ms = int((part.until + self.margin).timestamp() * 1000)
        later = {(each.table, each.name) for each in batches if each.first_ms >= end_ms}
        return digest(name for name in files if _batch_of(name) not in later)

    def _rows_by_step(self, day: date) -> dict[int, int]:
        """The number of rows received in each step of ten minutes of a day, by its first minute."""
        step_ms = _STEP_MINUTES * _MINUTE_MS
        step = F.floor(F.pmod(F.unix_millis("received_at"), F.lit(86_400_000)) / step_ms).alias("step")
        events, partitions = (self.tables.read(self.spark, name, days=[day]).select(step) for name in SOURCES)
        counted = events.unionByName(partitions).groupBy("step").agg(F.count(F.lit(1)).alias("rows")).collect()
        return {row.step * _STEP_MINUTES: row.rows for row in counted}


def parts_from(day: date, begins: Sequence[int]) -> list[Part]:
    """The parts of a day that begin at these minutes. The first one begins at 0."""
    return [Part(day, begin, end) for begin, end in zip(begins, [*begins[1:], _DAY_MINUTES], strict=True)]


def split(begins: Sequence[int], rows: Mapping[int, int], free: int, most: int) -> list[int]:
    """The minutes at which parts begin: ``begins``, and new ones so that no part grows after it has ``most`` rows.

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


def is_of_events(file: str) -> bool:
    return file.partition("/")[0] in SOURCES


def _batch_of(file: str) -> tuple[str, str]:
    """The table and the batch in ``events/2026-11-20/batch_id=…/part-….parquet``."""
    table, _, *below = file.split("/")
    return table, below[0].removeprefix("batch_id=")
