"""Keeps the state of ``karrot pipeline stale``: two tables with a row per partition, and a small note of the driver.

Each batch writes its tables into ``<checkpoint>/state/batch=N``. After that, it replaces ``<checkpoint>/state.json``,
which names the batch whose tables are valid, and deletes the older tables. If the driver dies before it replaces the
note, the repeated batch finds the old note and the old tables, and overwrites its own tables.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from karrot.clock import Clock, SystemClock
from karrot.pipeline.stale.alert_lines import lines_of
from karrot.pipeline.stale.stale_partition_rule import (
    SAMPLES,
    STANDINGS,
    ClusterTimes,
    judged,
    merged_samples,
    merged_standings,
    newest_commits,
    newest_samples,
    newest_times,
)
from karrot.pipeline.store.filesystem import delete, flush_files, listing, literal, read_text, write_text
from karrot.pipeline.store.shared_columns import PARTITION

_VERSION: Final = 2


class UnknownState(ValueError):  # noqa: N818 (names what was found)
    """Another version of Karrot wrote the state. The message says where the state is and what to do."""


class StateNote(msgspec.Struct):
    """The content of ``state.json``.

    - ``version``: the version of the format.
    - ``batch``: the last batch that changed the state. Its tables are valid.
    - ``sampled_ms``, ``held_until_ms``: the `ClusterTimes`.
    - ``unsent``: the lines that are not delivered yet.
    """

    version: int = _VERSION
    batch: int = -1
    sampled_ms: dict[str, int] = {}
    held_until_ms: dict[str, int] = {}
    unsent: list[str] = []


class _Version(msgspec.Struct):
    version: int = 1


@dataclass(slots=True)
class PartitionState:
    """The state in a checkpoint. Two jobs must not share a checkpoint.

    A time from a clock that was ahead is changed to the present, so that it does not stay the newest.
    """

    spark: SparkSession
    checkpoint: str
    clock: Clock = field(default_factory=SystemClock)
    _note: StateNote | None = None

    def note(self) -> StateNote:
        """Return the note. The first call reads it. Raises `UnknownState`."""
        if self._note is None:
            text = read_text(self.spark, self._place("state.json"))
            self._note = StateNote() if text is None else self._parsed(text)
        return self._note

    def remember(self, note: StateNote) -> None:
        """Replace the note in one step, and delete all tables but its own."""
        write_text(self.spark, self._place("state.json"), msgspec.json.encode(note).decode())
        self._note = note
        for name in listing(self.spark, self._place("state")):
            if name != f"batch={note.batch}":
                delete(self.spark, self._place("state", name))

    def advance(self, batch: int, records: DataFrame, length: timedelta) -> ClusterTimes:
        """Judge the records of a batch, and write its tables. The note still has to be written."""
        records = records.withColumn("at_ms", self._not_ahead(F.col("at_ms")))
        times = self._times().after(*newest_times(records), length)
        self._write(merged_samples(self.samples(), newest_samples(records, length), length), batch, "samples")
        standings = merged_standings(self.standings(), newest_commits(records))
        self._write(judged(standings, self._read(batch, "samples", SAMPLES), times, length), batch, "standings")
        return times

    def lines(self, batch: int, most: int) -> tuple[list[str], int]:
        """Return at most ``most`` lines of a batch, sorted by partition, and the number of all its lines."""
        changed = self._read(batch, "standings", STANDINGS).where(F.col("looked_at_ms").isNotNull())
        is_cleared = F.col("cleared_offset").isNotNull()
        row = changed.agg(F.count_if(is_cleared).alias("cleared"), F.count_if("fired").alias("fired")).first()
        total = row.cleared + row.fired if row else 0
        if not total:
            return [], 0
        last = changed.orderBy(*(F.desc(name) for name in PARTITION)).limit(most).collect()
        lines = [line for row in reversed(last) for line in lines_of(row)]
        return lines[max(0, len(lines) - most) :], total

    def standings(self) -> DataFrame:
        """The rows of `STANDINGS` that are not forgotten."""
        known = self._read(self.note().batch, "standings", STANDINGS).where(F.col("at_ms") >= self._times().oldest_ms())
        return known.withColumns(
            {name: self._not_ahead(F.col(name)) for name in ("at_ms", "since_ms", "alert_since_ms")}
        )

    def samples(self) -> DataFrame:
        """The rows of `SAMPLES` that are not forgotten."""
        known = self._read(self.note().batch, "samples", SAMPLES)
        each = F.transform("samples", lambda one: one.withField("at_ms", self._not_ahead(one["at_ms"])))
        is_kept = F.element_at("samples", -1)["at_ms"] >= self._times().oldest_ms()
        return known.where(is_kept).withColumn("samples", each)

    def _times(self) -> ClusterTimes:
        note, now_ms = self.note(), self.clock.wall_ms()
        return ClusterTimes({each: min(at_ms, now_ms) for each, at_ms in note.sampled_ms.items()}, note.held_until_ms)

    def _not_ahead(self, at_ms: Column) -> Column:
        now_ms = self.clock.wall_ms()
        return F.when(at_ms > now_ms, now_ms).otherwise(at_ms)

    def _read(self, batch: int, name: str, schema: StructType) -> DataFrame:
        if batch < 0:
            columns = (F.lit(None).cast(each.dataType).alias(each.name) for each in schema.fields)
            return self.spark.range(0).select(*columns)
        return self.spark.read.schema(schema).parquet(literal(self._place("state", f"batch={batch}", name)))

    def _write(self, rows: DataFrame, batch: int, name: str) -> None:
        path = self._place("state", f"batch={batch}", name)
        rows.write.mode("overwrite").parquet(path, compression="zstd")
        flush_files(self.spark, path)

    def _place(self, *names: str) -> str:
        return "/".join([self.checkpoint.rstrip("/"), *names])

    def _parsed(self, text: str) -> StateNote:
        version = msgspec.json.decode(text, type=_Version).version
        if version != _VERSION:
            raise UnknownState(
                f"{self._place('state.json')} has version {version}, and this Karrot reads version {_VERSION}: "
                "use the Karrot that wrote it, or another --checkpoint"
            )
        return msgspec.json.decode(text, type=StateNote)
