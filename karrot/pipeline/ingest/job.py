"""Runs the step ``events``: streams event lines into ``events``, ``partitions`` and ``quarantine``.

Spark's source finds the new segments or records. A batch reads them once and commits its rows to each table. A batch
that is repeated after a crash replaces its own rows. The id of a batch begins with the checkpoint's id, because a new
checkpoint counts from 0 again and must not replace the batches of another checkpoint.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from threading import Event
from typing import Final, Self

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from karrot.pipeline.ingest.event_sources import EventSource, Segment
from karrot.pipeline.ingest.events import (
    FIRST_LINES,
    SequenceRange,
    bad_lines,
    events,
    in_order,
    overlap,
    partitions,
    read_lines,
    repeated_lines,
    stored_ranges,
)
from karrot.pipeline.schemas_and_conversions import QUARANTINE, rows, with_day
from karrot.pipeline.store.hadoop_filesystem import plain_url
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import (
    UnevenError,
    batch_name,
    checkpoint_id,
    checkpoint_reader,
    persisted,
    run_queries,
    start_query,
)

SHORT_SEGMENT: Final = "short_segment"
"""The reason in ``quarantine`` for a segment with fewer lines than its name says."""


@dataclass(frozen=True, slots=True)
class IngestSummary:
    """Counts the lines that a run read and what became of them.

    ``missing`` counts lines that the numbers in the segments' names include, but the segments lack. ``lost`` counts
    lines that were deleted from the topic before they were read.
    """

    batches: int = 0
    segments: int = 0
    lines: int = 0
    events: int = 0
    partitions: int = 0
    quarantined: int = 0
    duplicates: int = 0
    short_segments: int = 0
    missing: int = 0
    lost: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def is_even(self) -> bool:
        return self.lines == self.events + self.quarantined + self.duplicates

    def __str__(self) -> str:
        text = (
            f"{self.lines:,} lines{f' of {self.segments:,} segments' if self.segments else ''} = {self.events:,} events"
            f" + {self.quarantined:,} quarantined + {self.duplicates:,} duplicates; {self.partitions:,} partitions"
        )
        if self.short_segments:
            text += f"; {self.missing:,} lines are missing from {self.short_segments:,} short segments"
        return f"{text}; {self.lost:,} were deleted from the topic before they were read" if self.lost else text


@dataclass(slots=True)
class Ingest:
    """The job: writes event lines batch by batch.

    Two jobs must not write into the same tables, because neither would see the other's events.
    """

    spark: SparkSession
    source: EventSource
    tables: Tables
    checkpoint: str = ""
    total: IngestSummary = field(default_factory=IngestSummary)

    def __post_init__(self) -> None:
        self.checkpoint = self.checkpoint or self.tables.checkpoint(self.source.checkpoint("ingest"))

    def run(self, stop: Event | None = None) -> IngestSummary:
        """Write the existing lines, until ``stop`` is set.

        Raises the errors of `start`, and StreamingQueryException if a batch failed (`UnevenError` is one reason).
        """
        run_queries([self.start()], stop=stop or Event(), follow=False)
        return self.total

    def start(self) -> StreamingQuery:
        """Start the query and return. Raises the errors of the source's ``lines``."""
        return start_query(self.source.lines(self.spark), self.take, self.checkpoint, None)

    def take(self, lines: DataFrame, batch: int) -> None:
        notes = checkpoint_reader(self.spark, self.checkpoint)
        taken = self.source.segments(notes, batch)
        batch_id = batch_name(checkpoint_id(lines.sparkSession), batch)
        with persisted(read_lines(lines)) as read:
            lost = self.source.lost(notes, batch, read)
            summary = LineBatch(lines.sparkSession, self.tables, batch_id, read, taken).write()
            if not summary.is_even:
                raise UnevenError(f"batch {batch_id}: {summary}")
        self.total += summary + IngestSummary(lost=lost)


@dataclass(frozen=True, slots=True)
class LineBatch:
    """One batch of event lines: the lines, as `read_lines` parses them, and the segments from which they come."""

    spark: SparkSession
    tables: Tables
    batch_id: str
    lines: DataFrame
    segments: list[Segment]

    def write(self) -> IngestSummary:
        """Write the events that the tables do not have."""
        log_id, seq = F.col("line.log_id"), F.col("line.seq")
        sorts = self.lines.groupBy("path", "day", log_id.alias("log_id"), F.col("reason").isNotNull().alias("is_bad"))
        counted = sorts.agg(
            F.count("*").alias("lines"),
            F.min("number").alias("first"),
            F.min(seq).alias("lowest"),
            F.max(seq).alias("highest"),
            in_order().alias("in_order"),
        ).collect()
        found = Counter[str]()
        for row in counted:
            found[plain_url(row.path)] += row.lines
        missing = {one: lacks for one in self.segments if (lacks := one.promised - found[one.path]) > 0}
        good = [row for row in counted if not row.is_bad]
        days = {row.day for row in good}
        new, duplicates = self._new(good, days)
        # Write events last: after a crash, a line with a stored event is skipped as a duplicate.
        of_partitions = self.tables.append(partitions(new), "partitions", self.batch_id)
        of_events = self.tables.append(events(new), "events", self.batch_id)
        short = self._new_short(missing)
        quarantined, repeated = self._write_quarantine(counted, short)
        return IngestSummary(
            batches=1,
            segments=len(self.segments),
            lines=found.total(),
            events=of_events,
            partitions=of_partitions,
            quarantined=quarantined - len(short),
            duplicates=duplicates + repeated,
            short_segments=len(missing),
            missing=sum(missing.values()),
        )

    def _new(self, good: list[Row], days: Collection[date]) -> tuple[DataFrame, int]:
        """Return the lines without repeated events, and the number of repeated ones."""
        lowest, highest = (min(row.lowest for row in good), max(row.highest for row in good)) if good else (0, 0)
        # A file's footer has the range of its sequence numbers, so Spark skips files with other numbers.
        known = self._of_other_batches("events", days).where(F.col("seq").between(lowest, highest))
        if all(row.in_order for row in good):
            taken = [SequenceRange(row.log_id, row.lowest, row.highest) for row in good]
            if not overlap([*taken, *stored_ranges(known)]):
                return self.lines, 0
        repeated = repeated_lines(self.lines, known)
        duplicates = repeated.count()
        return self.lines.join(repeated, on="number", how="left_anti") if duplicates else self.lines, duplicates

    def _new_short(self, missing: Mapping[Segment, int]) -> dict[Segment, int]:
        """The short segments that the table does not have with the same number of missing lines."""
        if not missing:
            return {}
        known = self._of_other_batches("quarantine", {one.written_on for one in missing})
        short = known.where(F.col("reason") == SHORT_SEGMENT).select("source", "missing")
        noted = {(row.source, row.missing) for row in short.collect()}
        return {one: count for one, count in missing.items() if (one.path, count) not in noted}

    def _write_quarantine(self, counted: list[Row], short: Mapping[Segment, int]) -> tuple[int, int]:
        """Write the short segments and the new bad lines.

        Return the number of written rows, and the number of bad lines that were stored already.
        """
        bad = {row.path for row in counted if row.is_bad}
        if not bad:
            if short:
                return self.tables.append(_short_segments(self.spark, short), "quarantine", self.batch_id), 0
            # A segment that was short before a crash can be complete now, for example if its copy was not finished.
            self.tables.drop_batch(self.spark, "quarantine", self.batch_id)
            return 0, 0
        # The row with the first line of a path comes last in this order, so it stays in the dict.
        first = {row.path: row.first for row in sorted(counted, key=lambda row: -row.first)}
        places = [{"source": plain_url(path), "path": path, "first": first[path]} for path in sorted(bad)]
        lines = bad_lines(self.lines, self.spark.range(1).select(rows(places, FIRST_LINES)))
        known = self._of_other_batches("quarantine", {row.day for row in counted if row.is_bad})
        known = known.select("source", "position").distinct()
        repeated = lines.join(known, on=["source", "position"], how="left_semi").count()
        if repeated:
            lines = lines.join(known, on=["source", "position"], how="left_anti").select(lines.columns)
        rows_and_short = lines.unionByName(_short_segments(self.spark, short))
        return self.tables.append(rows_and_short, "quarantine", self.batch_id), repeated

    def _of_other_batches(self, name: str, days: Collection[date]) -> DataFrame:
        files = (file for file in self.tables.files(self.spark, name) if file.day in days)
        return self.tables.read_files(self.spark, name, [file for file in files if file.batch_id != self.batch_id])


def _short_segments(spark: SparkSession, missing: Mapping[Segment, int]) -> DataFrame:
    """Make one row of ``quarantine`` per segment with missing lines, on the day on which it was written."""
    short = [
        {"source": one.path, "reason": SHORT_SEGMENT, "missing": count, "day": one.written_on.isoformat()}
        for one, count in sorted(missing.items())
    ]
    return spark.range(1).select(rows(short, with_day(QUARANTINE)))
