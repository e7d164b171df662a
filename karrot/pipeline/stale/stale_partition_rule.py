"""Decides in Spark which partitions are stale, from the state of the last batch and the new records.

A partition of a group is stale for a duration ``D`` if both conditions hold:

- Its committed offset has been the same for ``D``, up to the newest log-end sample.
- Two samples have a log end beyond this offset: the newest sample, and the newest sample at least ``D`` older.

The time of the newest sample counts as the present, so a partition without new samples does not become stale.
docs/offsets-jobs.md explains the rule. The columns run without Python on the executors, which may not have Karrot.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.offsets.kept_log_ends import KeptLogEnds
from karrot.pipeline.schemas_and_conversions import BOOLEAN, INT, LONG, STRING, struct
from karrot.pipeline.window_arrays.judge_windows import newest

FORGOTTEN_MS: Final = 31 * 86_400_000
"""How long a partition without new commits or without new samples is kept.

Deleted offsets are also kept for this time, because their old commits may be read again.
"""
_PLACE: Final = (pa.string(), pa.int32())
GRAINS: Final = 64
"""Of the samples in a 64th of ``D``, only the newest is kept."""

PARTITION: Final = ("consumer", "topic", "partition")
_RECORD: Final = ("offset", "at_ms", "log_offset", "since_ms", "alert_offset", "alert_since_ms")
_CHANGE: Final = ("cleared_offset", "cleared_since_ms")
STANDINGS: Final = struct(
    consumer=STRING,
    topic=STRING,
    partition=INT,
    **dict.fromkeys((*_RECORD, *_CHANGE), LONG),
    fired=BOOLEAN,
    looked_at_ms=LONG,
    end_offset=LONG,
)
"""A row for each partition of a group.

- ``offset``, ``at_ms``, ``log_offset``: the newest record's committed offset (NULL for a tombstone), time and offset.
- ``since_ms``: the time of the first consecutive record with this committed offset.
- ``alert_offset``, ``alert_since_ms``: the alert that was sent and is not cleared yet, or NULL.

These columns say what the batch changed. They are NULL in rows that the batch did not change:

- ``cleared_offset``, ``cleared_since_ms``: the alert that the batch cleared.
- ``fired``: whether the batch opened an alert, with the offset and ``since_ms`` of the row.
- ``looked_at_ms``, ``end_offset``: the newest log-end sample.
"""


SAMPLES: Final = "topic string, partition int, seen_ms bigint, end bigint, then_offset bigint"
"""The columns of `forget_old_samples`."""


def held_until(
    held_ms: int,
    times_ms: tuple[int, int],
    polls_ms: Sequence[int],
    committed_ms: int | None,
    length_ms: int,
    *,
    is_last: bool,
) -> int:
    """Return the time before which no partition becomes stale, from the time of the newest commit and those of samples.

    ``times_ms`` are the newest sample of the last batch (0 before the first sample) and of this batch, at most at the
    time of the batch. ``polls_ms`` has the real times of samples, ascending, from the newest one of the last batch on.

    The job may not have read the newest commits. It counts as behind if more records wait (not ``is_last``), after a
    gap of more than ``length_ms`` between samples, or while its commits are at least ``length_ms`` older than the
    newest sample. It has caught up after a commit less than ``length_ms`` older than the newest sample, or after
    ``length_ms`` without commits. The result is at most ``length_ms`` after the newest sample, even if a clock was
    ahead.
    """
    before_ms, sampled_ms = times_ms
    has_gap = any(later - earlier > length_ms for earlier, later in pairwise(polls_ms))
    held_ms = min(held_ms, sampled_ms + length_ms)
    if not is_last:
        return sampled_ms + length_ms
    if before_ms == 0 or (committed_ms is not None and committed_ms > sampled_ms - length_ms):
        return 0
    return sampled_ms + length_ms if committed_ms is not None or has_gap else held_ms


def forget_old_samples(samples: KeptLogEnds, length_ms: int) -> pa.Table:
    """Keep what the rule needs, and return a row for each partition with its newest sample.

    Of each partition, keep the samples of the last ``length_ms``, one for each 64th of it, and the newest older sample,
    whose log end is the row's ``then_offset`` (NULL without such a sample).
    """
    source, at_ms, offset, _ = samples.ends
    last = samples.last()
    then = newest(source, at_ms, np.arange(len(last)), at_ms[last] - length_ms)
    is_kept = np.arange(len(source)) >= then[source]
    grain = at_ms // max(1, length_ms // GRAINS)
    is_kept[:-1] &= (source[1:] != source[:-1]) | (grain[1:] != grain[:-1])
    is_kept[then[then >= 0]] = True
    sampled_ms = int(at_ms.max(initial=0))
    is_kept &= at_ms[last][source] >= sampled_ms - FORGOTTEN_MS
    named = [pa.array([place[part] for place in samples.places], kind) for part, kind in enumerate(_PLACE)]
    offsets = [pa.array(at_ms[last]), pa.array(offset[last]), pa.array(offset[then], mask=then < 0)]
    table = pa.table([*named, *offsets], ["topic", "partition", "seen_ms", "end", "then_offset"])
    samples.keep(is_kept)
    return table


def newest_commits(commits: DataFrame) -> DataFrame:
    """Return one row per partition of a group, with three records.

    The records are the newest, the first consecutive record with the same offset, and the record before that first.
    """
    in_log = Window.partitionBy(*PARTITION).orderBy("at_ms", "log_offset")
    place = F.struct("at_ms", "log_offset")
    before = F.lag(place).over(in_log)
    begins = before.isNull() | ~F.col("offset").eqNullSafe(F.lag("offset").over(in_log))
    run = F.when(begins, F.struct(place.alias("first"), before.alias("before")))
    newest = F.struct(place.alias("newest"), "offset")
    per_partition = commits.where(F.col("at_ms").isNotNull()).withColumn("run", run).groupBy(*PARTITION)
    summed = per_partition.agg(F.max(newest).alias("newest"), F.max("run").alias("run"))
    return summed.select(*PARTITION, "newest.offset", "newest.newest", "run.first", "run.before")


def merged_standings(known: DataFrame, commits: DataFrame) -> DataFrame:
    """Add the commits of a batch to the known standings. Only a record newer than the known record changes a row."""
    each = known.join(commits.withColumnRenamed("offset", "new_offset"), [*PARTITION], "full_outer")
    is_known, place = F.col("at_ms").isNotNull(), F.struct("at_ms", "log_offset")
    stays = F.col("newest").isNull() | (is_known & (F.col("newest") <= place))
    is_unbroken = F.col("before").isNull() | (F.col("before") <= place)
    goes_on = is_known & F.col("offset").eqNullSafe(F.col("new_offset")) & is_unbroken
    first_ms = F.col("first")["at_ms"]
    since_ms = F.when(stays | goes_on, F.col("since_ms")).otherwise(first_ms)

    def newer(new: Column, name: str) -> Column:
        return F.when(stays, F.col(name)).otherwise(new).alias(name)

    return each.select(
        *PARTITION,
        newer(F.col("new_offset"), "offset"),
        newer(F.col("newest")["at_ms"], "at_ms"),
        newer(F.col("newest")["log_offset"], "log_offset"),
        since_ms.alias("since_ms"),
        "alert_offset",
        "alert_since_ms",
    )


def judged(standings: DataFrame, samples: DataFrame, length_ms: int, oldest_ms: int, *, may_fire: bool) -> DataFrame:
    """Judge all partitions. Return rows of `STANDINGS` with the alerts that the batch opens and clears.

    ``samples`` has the rows of `forget_old_samples`. A partition with no sample since ``oldest_ms`` loses its alert.
    """
    end, seen_ms = F.col("end"), F.col("seen_ms")
    unread_from = F.when(F.col("then_offset").isNotNull(), F.least("then_offset", end))
    is_stale = _holds((F.col("since_ms") <= seen_ms - length_ms) & (unread_from > F.col("offset")))
    has_alert = F.col("alert_offset").isNotNull()
    same = (F.col("alert_offset") == F.col("offset")) & (F.col("alert_since_ms") == F.col("since_ms"))
    stays = has_alert & is_stale & _holds(same)
    is_cleared, fired = has_alert & ~stays, is_stale & ~stays & F.lit(may_fire)
    is_open = (stays | fired) & (seen_ms >= oldest_ms)
    changed = is_cleared | fired
    shown = {
        "alert_offset": F.when(is_open, F.col("offset")),
        "alert_since_ms": F.when(is_open, F.col("since_ms")),
        "cleared_offset": F.when(is_cleared, F.col("alert_offset")),
        "cleared_since_ms": F.when(is_cleared, F.col("alert_since_ms")),
        "fired": F.when(fired, fired),
        "looked_at_ms": F.when(changed, seen_ms),
        "end_offset": F.when(changed, end),
    }
    every = standings.join(samples, ["topic", "partition"], "left")
    return every.select(*(shown.get(name, F.col(name)).alias(name) for name in STANDINGS.names))


def _holds(condition: Column) -> Column:
    """Return the condition with false instead of NULL."""
    return F.coalesce(condition, F.lit(False))
