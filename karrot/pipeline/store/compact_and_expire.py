"""Runs the step ``compact``: merges the small files of a day, and deletes days beyond the retention.

An incident is on the day on which it began. Its row is deleted if the incident ended before the oldest kept day.

Each day of a table is merged in one transaction, so a reader sees the small files or the merged file. The job then
deletes the files that no version of the last `READERS_HOURS` has, and those that killed commands left.
"""

from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from karrot.history.days_with_data import Note
from karrot.pipeline.schemas_and_conversions import DERIVED, STREAMED, SUMMARIES, TABLES
from karrot.pipeline.store.table_files import (
    WATCHED,
    Tables,
    by_day,
    digest,
    new_batch,
    read_note,
    write_note,
)
from karrot.text import counted_plain

_MERGED: Final = "merged"


class Compacted(NamedTuple):
    files_before: int
    files_after: int
    dropped: list[date]

    def __str__(self) -> str:
        merged = f"merged {counted_plain(self.files_before, 'file')} into {self.files_after}"
        return f"{merged}, dropped {counted_plain(len(self.dropped), 'day')}"


def compact(spark: SparkSession, tables: Tables, *, keep: timedelta, today: date) -> Compacted:
    """Drop the days older than ``keep``, merge the days before ``today`` that have more than one file, and clean up."""
    dropped, note = _drop(spark, tables, today - keep), read_note(spark, tables)
    if dropped:
        kept, unfinished = (
            {day: each for day, each in noted.items() if day >= today - keep} for noted in (note.days, note.unfinished)
        )
        note = _write_note(spark, tables, replace(note, days=kept, unfinished=unfinished))
    files = {name: tables.files(spark, name) for name in STREAMED}
    before = by_day({name: files[name] for name in WATCHED})
    merged, count = 0, 0
    # Ingest commits events last. A batch without events may be repeated, and must then find its own partitions.
    in_events = {file.batch_id for file in files["events"]}
    for name, listed in files.items():
        may_merge = [file for file in listed if file.day < today]
        if name == "partitions":
            may_merge = [f for f in may_merge if f.batch_id in in_events or f.batch_id.startswith(_MERGED)]
        for day in sorted({file.day for file in may_merge}):
            of_day = [file for file in may_merge if file.day == day]
            if len(of_day) > 1:
                made = tables.merge(spark, name, of_day, new_batch(_MERGED))
                files[name] = [*(file for file in files[name] if file not in of_day), *made]
                merged, count = merged + len(of_day), count + len(made)
    # A merged day keeps its rows, so derive need not make the day again. If ingest has added a batch to the day since
    # `before`, the batch is not in `after`, and derive makes the day again.
    after = by_day({name: files[name] for name in WATCHED})
    known = {day: done for day, done in note.days.items() if done.files == digest(before.get(day, ()))}
    renamed = {day: replace(done, files=digest(after[day])) for day, done in known.items() if day in after}
    note = _write_note(spark, tables, replace(note, days=note.days | renamed))
    for name in (*TABLES, SUMMARIES):
        tables.vacuum(spark, name, note.versions.get(name))
    return Compacted(merged, count, dropped)


def _write_note(spark: SparkSession, tables: Tables, note: Note) -> Note:
    """Write the note, with the newest versions of the derived tables unless a run of ``derive`` was interrupted."""
    # A table that somebody has deleted stays in the note, so that readers do not take it for an empty table.
    made = note if note.unfinished else replace(note, versions=note.versions | tables.newest(spark, DERIVED))
    write_note(spark, tables, made)
    return made


def _drop(spark: SparkSession, tables: Tables, oldest: date) -> list[date]:
    """Drop the days before ``oldest`` from every table. Keep incidents that last longer."""
    dropped: set[date] = set()
    for name in TABLES:
        lasting = _drop_ended(spark, tables, oldest) if name == "incidents" else frozenset[date]()
        if days := {day for day in tables.days(spark, name) if day < oldest and day not in lasting}:
            tables.drop_days(spark, name, days)
            dropped |= days
    return sorted(dropped)


def _drop_ended(spark: SparkSession, tables: Tables, oldest: date) -> AbstractSet[date]:
    """Drop the incidents that ended before ``oldest``. Return the earlier days that still have incidents.

    An incident is on the day on which it started. An incident that lasts into the kept days must stay.
    """
    days = [day for day in tables.days(spark, "incidents") if day < oldest]
    rows = tables.read(spark, "incidents", days=days)
    lasts = F.col("ended_at").isNull() | (F.col("ended_at") >= F.lit(datetime.combine(oldest, time(), UTC)))
    counted = rows.groupBy("day").agg(F.count("*").alias("rows"), F.count_if(lasts).alias("lasting")).collect()
    if ended := [row.day for row in counted if 0 < row.lasting < row.rows]:
        tables.replace_days(rows.where(lasts & F.col("day").isin(ended)), "incidents", ended)
    return {row.day for row in counted if row.lasting}
