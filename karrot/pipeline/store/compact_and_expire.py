"""Runs ``karrot pipeline compact``: merges the small files of a day, and deletes days beyond the retention.

An incident is on the day on which it began. Its row is deleted if the incident ended before the oldest kept day.

The job writes a merged file to a staging folder, and then moves the file next to the day's batches. After that, the job
deletes each merged batch by its name. So no row is ever missing, and a batch that ingest adds at the same time stays.
For a moment, a reader can see rows of the day twice. After a crash, this lasts until the next run. ``derive`` counts
each event once.
"""

import uuid
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from karrot.history.days_with_data import Note
from karrot.pipeline.schemas_and_conversions import SORTED_BY, STREAMED, TABLES, UNIQUE_BY, columns_of
from karrot.pipeline.store.hadoop_filesystem import delete, listing, literal
from karrot.pipeline.store.table_files import WATCHED, Tables, days_present, digest, read_note, write_note
from karrot.text import counted_plain


class Compacted(NamedTuple):
    files_before: int
    files_after: int
    dropped: list[date]

    def __str__(self) -> str:
        merged = f"merged {counted_plain(self.files_before, 'file')} into {self.files_after}"
        return f"{merged}, dropped {counted_plain(len(self.dropped), 'day')}"


def compact(spark: SparkSession, tables: Tables, *, keep: timedelta, today: date) -> Compacted:
    """Drop the days older than ``keep``, and merge the days before ``today`` that have more than one file.

    Also delete files of killed batches in the streamed tables that are older than a day. No batch takes a day.
    """
    tables.sweep_batches(spark, STREAMED, before=datetime.combine(today - timedelta(days=1), time(), UTC))
    dropped = _drop(spark, tables, today - keep)
    note, before = read_note(spark, tables), days_present(spark, tables)
    merged, digests, count = 0, dict(before), 0
    for day in sorted(before):
        if day >= today:
            continue
        listed: list[str] = []
        names: list[str] = []
        for name in STREAMED:
            files = _files(spark, tables, name, day)
            listed += [f"{name}/{file}" for file in files if name in WATCHED]
            if len(files) > 1:
                merged, count = merged + len(files), count + 1
                files = [_merge(spark, tables, name, day, files)]
            names += [f"{name}/{file}" for file in files if name in WATCHED]
        # If ingest has added a batch since `before`, the day stays changed, so that derive makes it again.
        if digest(listed) == before[day]:
            digests[day] = digest(names)
    # With the new digests of unchanged days in the note, these days are not derived again.
    known = {day: done for day, done in note.days.items() if before.get(day) == done.files}
    renamed = {day: replace(done, files=digests[day]) for day, done in known.items()}
    write_note(spark, tables, Note(note.rules, {**note.days, **renamed}, note.unfinished))
    return Compacted(merged, count, dropped)


def _drop(spark: SparkSession, tables: Tables, oldest: date) -> list[date]:
    """Drop the days before ``oldest`` from every table and from the note. Keep incidents that last longer."""
    dropped: set[date] = set()
    for name in TABLES:
        lasting = _drop_ended(spark, tables, oldest) if name == "incidents" else frozenset[date]()
        for day in tables.days(spark, name):
            if day < oldest and day not in lasting:
                tables.drop_day(spark, name, day)
                dropped.add(day)
    if dropped:
        note = read_note(spark, tables)
        kept = ({day: each for day, each in noted.items() if day >= oldest} for noted in (note.days, note.unfinished))
        write_note(spark, tables, Note(note.rules, *kept))
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


def _files(spark: SparkSession, tables: Tables, name: str, day: date) -> list[str]:
    """Return the files of a day, each ``YYYY-MM-DD/batch_id=…/name``."""
    batches = listing(spark, tables.path(name, f"day={day}"))
    return [
        f"{day}/{batch}/{file}"
        for batch in batches
        if batch.startswith("batch_id=")
        for file in listing(spark, tables.path(name, f"day={day}", batch))
        if file.endswith(".parquet")
    ]


def _merge(spark: SparkSession, tables: Tables, name: str, day: date, files: list[str]) -> str:
    place = f"{day}/batch_id=merged-{uuid.uuid4().hex[:12]}/{name}.parquet"
    paths = [literal(tables.path(name, f"day={file}")) for file in files]
    rows = spark.read.schema(STREAMED[name]).parquet(*paths).dropDuplicates(UNIQUE_BY.get(name))
    tables.write_file(rows.select(*columns_of(STREAMED[name])), SORTED_BY[name], name, f"day={place}")
    for batch in {file.rpartition("/")[0] for file in files}:
        delete(spark, tables.path(name, f"day={batch}"))
    return place
