"""Derives the table ``partition_lag_minute``: commits against log ends, without Burrow.

A partition has a row for every minute in which its group committed or its log end was sampled, because the lag of a
consumer that has stopped goes on growing.
"""

from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.derive.lag_seconds import crossed, nearest, seconds_behind, with_log_end
from karrot.pipeline.schemas import PARTITION_LAG_MINUTE, columns_of
from karrot.pipeline.store.shared_columns import LOG, PARTITION

FORGOTTEN: Final = timedelta(days=31)
"""How long after its last commit a partition is left out: its tombstone has been missed."""

_MINUTE_MS: Final = 60_000
_MS: Final = timedelta(milliseconds=1)
_BEFORE: Final = -1


def partition_lag_minute(
    commits: DataFrame, before: DataFrame, ends: DataFrame, owners: DataFrame, *, longest: timedelta
) -> DataFrame:
    """``partition_lag_minute`` of one day of ``commits``.

    ``before`` is what `carried` over from the day before, ``ends`` are `sample_spans`, those of the day before among
    them, ``owners`` who had which partition from when to when. Only the minutes of the day's samples have rows:
    ``ends`` says which by ``is_of_day``.

    The lag is the log end at that moment less the committed offset, the lag in time how long ago the log ended at the
    committed offset. A lag that began before the first look is unknown in time. A look holds for ``longest``.
    """
    reckoned = _with_end(_minutes(commits, before, ends), ends, longest)
    timed = with_log_end(reckoned, ends, crossed(LOG))
    told = timed.withColumns({"lag_seconds": seconds_behind()}).withColumn("method", _method())
    return _with_owner(told, owners).select(*columns_of(PARTITION_LAG_MINUTE), F.to_date("minute").alias("day"))


def carried(rows: DataFrame) -> DataFrame:
    """What the days after those of ``partition_lag_minute`` begin with: the newest commit of each partition."""
    commit = F.struct(F.col("committed_offset").alias("offset"), F.unix_millis("committed_at").alias("at_ms"))
    newest = F.max_by(commit, "minute")
    kept = rows.groupBy(*PARTITION).agg(newest.alias("committed"))
    return kept.where(F.col("committed.offset").isNotNull())


def _minutes(commits: DataFrame, before: DataFrame, ends: DataFrame) -> DataFrame:
    """A row per partition and minute that has a commit or a look, as of its moment ``at_ms``."""
    newest = _newest_of_minute(commits)
    known = newest.select(*PARTITION).unionByName(before.select(*PARTITION)).distinct()
    looked = ends.where("is_of_day").groupBy(*LOG, _minute("at_ms")).agg(F.max("at_ms").alias("looked_ms"))
    in_looks = known.join(looked, on=list(LOG)).withColumn("commits", F.lit(0).cast("bigint"))
    told = (
        newest.unionByName(in_looks, allowMissingColumns=True)
        .groupBy(*PARTITION, "minute_ms")
        .agg(*(F.max(name).alias(name) for name in ("committed", "commits", "looked_ms")))
    )
    start = before.withColumn("minute_ms", F.lit(_BEFORE))
    in_time = Window.partitionBy(*PARTITION).orderBy("minute_ms")
    as_of = (
        told.unionByName(start, allowMissingColumns=True)
        .withColumn("newest", F.last("committed", ignorenulls=True).over(in_time))
        .where(F.col("minute_ms") > _BEFORE)
    )
    at_ms = F.coalesce("committed.at_ms", "looked_ms")
    is_known = F.col("newest.offset").isNotNull() & (at_ms - F.col("newest.at_ms") <= FORGOTTEN // _MS)
    taken_back = F.col("committed").isNotNull() & F.col("committed.offset").isNull()
    return as_of.where(is_known | taken_back).select(
        *PARTITION,
        F.timestamp_millis("minute_ms").alias("minute"),
        at_ms.alias("at_ms"),
        F.timestamp_millis(at_ms).alias("as_of"),
        F.col("newest.offset").alias("committed_offset"),
        F.when(is_known, F.timestamp_millis("newest.at_ms")).alias("committed_at"),
        "commits",
    )


def _newest_of_minute(commits: DataFrame) -> DataFrame:
    """The newest record of each partition and minute, and how many commits there were."""
    record = F.struct(F.when(~F.col("tombstone"), F.col("offset")).alias("offset"), F.col("log_ts_ms").alias("at_ms"))
    return commits.groupBy(*PARTITION, _minute("log_ts_ms")).agg(
        F.max_by(record, F.struct("log_ts_ms", "log_offset")).alias("committed"),
        F.count_if(~F.col("tombstone")).alias("commits"),
    )


def _with_end(rows: DataFrame, ends: DataFrame, longest: timedelta) -> DataFrame:
    """Adds ``end_offset``, ``lag``, ``negative`` and the ``life`` of the log.

    Between two looks the end is where an even growth takes it, and not below what was committed, since that was there.
    A commit beyond the next look, or beyond the last: one of the two is wrong or old. Where two numbers are so far
    apart that 64 bits cannot hold the difference, nothing is known.
    """
    as_of = with_log_end(rows, ends, nearest(LOG))
    look, committed, at_ms = F.col("look"), F.col("committed_offset"), F.col("at_ms")
    share = F.try_divide(at_ms - look.at_ms, look.next_ms - look.at_ms)
    grown = F.floor(share * F.try_subtract(look.next_offset, look.end_offset) + 0.5)
    even = F.try_add(look.end_offset, grown)
    between = F.when(even.isNotNull(), F.least(F.greatest(even, committed), look.next_offset))
    lasting = at_ms - look.at_ms <= longest // _MS
    end = F.when(look.next_ms.isNotNull(), between).when(lasting, look.end_offset)
    ended = F.col("end_offset")
    return as_of.withColumns({"end_offset": end, "life": look.life}).withColumns(
        {
            "lag": F.when(ended >= committed, F.try_subtract(ended, committed)).when(ended < committed, 0),
            "negative": F.when(ended < committed, 1).otherwise(0).cast("bigint"),
        }
    )


def _method() -> Column:
    seen = (F.col("lag") == 0) | (F.col("crossed.end_offset") == F.col("committed_offset"))
    return F.when(F.col("lag_seconds").isNull(), "unknown").when(seen, "observed").otherwise("interpolated")


def _with_owner(rows: DataFrame, owners: DataFrame) -> DataFrame:
    theirs = owners.select(*PARTITION, "owner", "from_ms", "until_ms")
    had = (F.col("at_ms") >= F.col("from_ms")) & (F.col("at_ms") < F.col("until_ms"))
    same = [rows[name] == theirs[name] for name in PARTITION]
    return rows.join(theirs, [*same, had], "left").select(*(rows[name] for name in rows.columns), "owner")


def _minute(at_ms: str) -> Column:
    return (F.col(at_ms) - F.pmod(F.col(at_ms), F.lit(_MINUTE_MS))).alias("minute_ms")
