"""Decides in Spark which partitions are stale, from the state of the last batch and the new records.

A partition of a group is stale for a duration ``D`` if both conditions hold:

- Its committed offset has been the same for ``D``, up to the newest log-end sample.
- Two samples have a log end beyond this offset: the newest sample, and the newest sample at least ``D`` older.

The time of the newest sample counts as the present, so a partition without new samples does not become stale.
docs/offsets-jobs.md explains the rule. The columns run without Python on the executors, which may not have Karrot.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from karrot.pipeline.schemas_and_conversions import BOOLEAN, GROUP, INT, LOG, LONG, PARTITION, STRING, struct

_MS: Final = timedelta(milliseconds=1)
_FORGOTTEN_MS: Final = timedelta(days=31) // _MS
_GRAINS: Final = 64
"""The maximum number of samples kept within ``D``. If there are more, the closest samples are dropped."""

_SAMPLES_TYPE: Final = "array<struct<at_ms: bigint, offset: bigint>>"

_RECORD: Final = ("offset", "at_ms", "log_offset", "since_ms", "alert_offset", "alert_since_ms")
_CHANGE: Final = ("cleared_offset", "cleared_since_ms")
STANDINGS: Final = struct(
    **dict.fromkeys(GROUP, STRING),
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

SAMPLES: Final = struct(cluster=STRING, topic=STRING, partition=INT, samples=ArrayType(struct(at_ms=LONG, offset=LONG)))
"""A row for each partition of a topic: its newest log-end samples, the newest sample last."""


class ClusterTimes(NamedTuple):
    """Two times of each cluster: ``sampled_ms`` is the time of the newest sample.

    While ``sampled_ms`` is before ``held_until_ms``, no partition becomes stale.
    """

    sampled_ms: Mapping[str, int]
    held_until_ms: Mapping[str, int]

    @property
    def free(self) -> list[str]:
        return [each for each, at_ms in self.sampled_ms.items() if at_ms >= self.held_until_ms.get(each, 0)]

    def after(
        self, committed_ms: Mapping[str, int], sampled_ms: Mapping[str, int], length: timedelta
    ) -> "ClusterTimes":
        """Return the times after a batch, from the times of each cluster's newest commit and newest sample.

        The job that reads ``__consumer_offsets`` may not have read newer commits. This job counts as behind after a gap
        of more than ``length`` between samples, or while its commits are at least ``length`` older than the newest
        sample. While the job is behind, no partition of the cluster becomes stale. The job has caught up after a commit
        less than ``length`` older than the newest sample, or after ``length`` without commits. A cluster's first batch
        sets no ``held_until_ms``, because this batch has old rows. ``held_until_ms`` is at most ``length`` after the
        newest sample, even if a clock was ahead.
        """
        newest = dict(self.sampled_ms)
        for cluster, at_ms in sampled_ms.items():
            newest[cluster] = max(newest.get(cluster, 0), at_ms)
        length_ms = length // _MS
        held = {each: min(until_ms, newest.get(each, 0) + length_ms) for each, until_ms in self.held_until_ms.items()}
        for cluster, now_ms in newest.items():
            before_ms, commit_ms = self.sampled_ms.get(cluster), committed_ms.get(cluster)
            is_fresh = commit_ms is not None and max(commit_ms, 0) > now_ms - length_ms
            has_gap = before_ms is not None and now_ms - before_ms > length_ms
            if is_fresh or before_ms is None:
                held[cluster] = 0
            elif commit_ms is not None or has_gap:
                held[cluster] = now_ms + length_ms
        return ClusterTimes(newest, held)

    def oldest_ms(self) -> Column:
        """Return the time before which a cluster's rows are dropped: 31 days before its newest sample.

        Deleted offsets are also kept for 31 days, because their old commits may be read again.
        """
        of_each = ((each, at_ms - _FORGOTTEN_MS) for each, at_ms in self.sampled_ms.items())
        return reduce(
            lambda rest, each: F.when(F.col("cluster") == each[0], each[1]).otherwise(rest), of_each, F.lit(0)
        )


def newest_times(records: DataFrame) -> tuple[dict[str, int], dict[str, int]]:
    commit = F.max(F.when(F.col("consumer").isNotNull(), F.col("at_ms"))).alias("commit")
    is_sample = F.col("consumer").isNull() & F.col("offset").isNotNull()
    sample = F.max(F.when(is_sample, F.col("at_ms"))).alias("sample")
    rows = records.groupBy("cluster").agg(commit, sample).collect()
    return (
        {row.cluster: row.commit for row in rows if row.commit is not None},
        {row.cluster: row.sample for row in rows if row.sample is not None},
    )


def newest_commits(records: DataFrame) -> DataFrame:
    """Return one row per partition of a group, with three records.

    The records are the newest, the first consecutive record with the same offset, and the record before that first.
    """
    in_log = Window.partitionBy(*PARTITION).orderBy("at_ms", "log_offset")
    place = F.struct("at_ms", "log_offset")
    before = F.lag(place).over(in_log)
    begins = before.isNull() | ~F.col("offset").eqNullSafe(F.lag("offset").over(in_log))
    run = F.when(begins, F.struct(place.alias("first"), before.alias("before")))
    newest = F.struct(place.alias("newest"), "offset")
    committed = records.where(F.col("consumer").isNotNull() & F.col("at_ms").isNotNull())
    per_partition = committed.withColumn("run", run).groupBy(*PARTITION)
    summed = per_partition.agg(F.max(newest).alias("newest"), F.max("run").alias("run"))
    return summed.select(*PARTITION, "newest.offset", "newest.newest", "run.first", "run.before")


def newest_samples(records: DataFrame, length: timedelta) -> DataFrame:
    """Return, per partition, the samples within ``length`` before the newest sample, and the newest older sample."""
    of_log = Window.partitionBy(*LOG)
    since = F.max("at_ms").over(of_log) - length // _MS
    samples = records.where(F.col("consumer").isNull() & F.col("offset").isNotNull()).withColumn("since", since)
    first = F.max(F.when(F.col("at_ms") <= F.col("since"), F.col("at_ms"))).over(of_log)
    needed = samples.withColumn("first", F.coalesce(first, F.lit(0))).where(F.col("at_ms") >= F.col("first"))
    return needed.groupBy(*LOG).agg(F.collect_list(F.struct("at_ms", "offset")).alias("new"))


def merged_samples(known: DataFrame, new: DataFrame, length: timedelta) -> DataFrame:
    """Add the samples of a batch to the known samples.

    Of a partition with new samples, keep the samples of the last ``length``, at least ``length / 64`` apart, and the
    newest older sample.
    """
    none = F.array().cast(_SAMPLES_TYPE)
    each = known.join(new, [*LOG], "full_outer").withColumn(
        "all", F.sort_array(F.concat(F.coalesce("samples", none), F.coalesce("new", none)))
    )
    too_close_ms = length // _MS // _GRAINS

    def keep(kept: Column, sample: Column) -> Column:
        """Append ``sample``. If the last two kept samples are too close to each other, replace the last one."""
        many = F.size(kept)
        is_close = F.get(kept, many - 1)["at_ms"] - F.get(kept, many - 2)["at_ms"] < too_close_ms
        before = F.when((many > 1) & is_close, F.slice(kept, 1, many - 1)).otherwise(kept)
        return F.concat(before, F.array(sample))

    until_then = F.filter("all", lambda sample: sample["at_ms"] <= _then_ms(F.col("all"), length))
    recent = F.slice("all", F.greatest(F.size(until_then), F.lit(1)), F.size("all"))
    kept = F.when(F.col("new").isNull(), F.col("samples")).otherwise(F.aggregate(recent, none, keep))
    return each.select(*LOG, kept.alias("samples"))


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


def judged(standings: DataFrame, samples: DataFrame, times: ClusterTimes, length: timedelta) -> DataFrame:
    """Judge all partitions. Return rows of `STANDINGS` with the alerts that the batch opens and clears."""
    then_ms = _then_ms(F.col("samples"), length)
    then = F.try_element_at(F.filter("samples", lambda sample: sample["at_ms"] <= then_ms), F.lit(-1))
    last = F.element_at("samples", -1)
    of_log = samples.select(*LOG, last.alias("last"), then["offset"].alias("then_offset"))
    end, seen_ms = F.col("last")["offset"], F.col("last")["at_ms"]
    unread_from = F.when(F.col("then_offset").isNotNull(), F.least("then_offset", end))
    is_stale = _holds((F.col("since_ms") <= seen_ms - length // _MS) & (unread_from > F.col("offset")))
    has_alert = F.col("alert_offset").isNotNull()
    same = (F.col("alert_offset") == F.col("offset")) & (F.col("alert_since_ms") == F.col("since_ms"))
    stays = has_alert & is_stale & _holds(same)
    is_cleared, fired = has_alert & ~stays, is_stale & ~stays & F.col("cluster").isin(times.free)
    # A partition whose samples are dropped loses its alert.
    is_open = (stays | fired) & (seen_ms >= times.oldest_ms())
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
    every = standings.join(of_log, [*LOG], "left")
    return every.select(*(shown.get(name, F.col(name)).alias(name) for name in STANDINGS.names))


def _then_ms(samples: Column, length: timedelta) -> Column:
    return F.element_at(samples, -1)["at_ms"] - length // _MS


def _holds(condition: Column) -> Column:
    """Return the condition with false instead of NULL."""
    return F.coalesce(condition, F.lit(False))
