"""Derives the table ``partition_lag_minute``: the lag of each partition from commits and log ends, without Burrow.

A partition has a row for every minute with a commit of its group or a log-end sample. The minutes of samples are
needed, because the lag of a consumer that has stopped keeps growing.
"""

from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.derive.lag_seconds import seconds_behind, with_last
from karrot.pipeline.schemas_and_conversions import LOG, PARTITION, PARTITION_LAG_MINUTE, columns_of

FORGOTTEN: Final = timedelta(days=31)
"""The highest age of a partition's last commit. Older partitions are left out: a tombstone was probably missed."""

_MINUTE_MS: Final = 60_000
_MS: Final = timedelta(milliseconds=1)
_BEFORE: Final = -1


def partition_lag_minute(
    commits: DataFrame, before: DataFrame, ends: DataFrame, owners: DataFrame, *, longest: timedelta
) -> DataFrame:
    """Make ``partition_lag_minute`` from one day of ``commits``.

    - ``before``: the commits that `carried` took over from the day before.
    - ``ends``: the `sample_spans` of this day and of the day before. Only samples with ``is_of_day`` make rows.
    - ``owners``: the `karrot.pipeline.derive.rebalances.owners` of each partition.

    Lag is the log end at the row's timestamp minus the committed offset. Lag in seconds is how long ago the log end was
    at the committed offset; if that was before the first sample, it is unknown. A sample is valid for ``longest``.
    """
    is_seen = (F.col("lag") == 0) | (F.col("crossed.end_offset") == F.col("committed_offset"))
    method = F.when(F.col("lag_seconds").isNull(), "unknown").when(is_seen, "observed").otherwise("interpolated")
    minutes = _minutes(commits, before, ends)
    lasting = with_last(minutes, owners, "owner", PARTITION, sampled="at_ms", asked="at_ms")
    owner = F.when(F.col("at_ms") < F.col("owner.until_ms"), F.col("owner.owner"))
    lags = _with_end(lasting.withColumn("owner", owner), ends, longest)
    timed = with_last(lags, ends, "crossed", (*LOG, "life"), sampled="end_offset", asked="committed_offset")
    complete = timed.withColumn("lag_seconds", seconds_behind()).withColumn("method", method)
    return complete.select(*columns_of(PARTITION_LAG_MINUTE), F.to_date("minute").alias("day"))


def carried(rows: DataFrame) -> DataFrame:
    """Return each partition's newest commit in ``partition_lag_minute``. The next day begins with these commits."""
    commit = F.struct(F.col("committed_offset").alias("offset"), F.unix_millis("committed_at").alias("at_ms"))
    newest = F.max_by(commit, "minute")
    kept = rows.groupBy(*PARTITION).agg(newest.alias("committed"))
    return kept.where(F.col("committed.offset").isNotNull())


def _minutes(commits: DataFrame, before: DataFrame, ends: DataFrame) -> DataFrame:
    """Make a row, at the time ``at_ms``, per partition and minute with a commit or a log-end sample."""
    newest = _newest_of_minute(commits)
    known = newest.select(*PARTITION).unionByName(before.select(*PARTITION)).distinct()
    sampled = ends.where("is_of_day").groupBy(*LOG, _minute("at_ms")).agg(F.max("at_ms").alias("sampled_ms"))
    in_samples = known.join(sampled, on=list(LOG)).withColumn("commits", F.lit(0).cast("bigint"))
    minutes = (
        newest.unionByName(in_samples, allowMissingColumns=True)
        .groupBy(*PARTITION, "minute_ms")
        .agg(*(F.max(name).alias(name) for name in ("committed", "commits", "sampled_ms")))
    )
    start = before.withColumn("minute_ms", F.lit(_BEFORE))
    in_time = Window.partitionBy(*PARTITION).orderBy("minute_ms")
    as_of = (
        minutes.unionByName(start, allowMissingColumns=True)
        .withColumn("newest", F.last("committed", ignorenulls=True).over(in_time))
        .where(F.col("minute_ms") > _BEFORE)
    )
    at_ms = F.coalesce("committed.at_ms", "sampled_ms")
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
    record = F.struct(F.when(~F.col("tombstone"), F.col("offset")).alias("offset"), F.col("log_ts_ms").alias("at_ms"))
    return commits.groupBy(*PARTITION, _minute("log_ts_ms")).agg(
        F.max_by(record, F.struct("log_ts_ms", "log_offset")).alias("committed"),
        F.count_if(~F.col("tombstone")).alias("commits"),
    )


def _with_end(rows: DataFrame, ends: DataFrame, longest: timedelta) -> DataFrame:
    """Add ``end_offset``, ``lag``, ``negative`` and the ``life`` of the log.

    Between two samples, the log end is interpolated, as if the log grew evenly. It is at least the committed offset,
    because the log had reached that offset. A commit beyond the next sample, or beyond the last one, is ``negative``:
    the commit or the sample is wrong or old. If the difference of two numbers exceeds 64 bits, the lag is unknown.
    """
    as_of = with_last(rows, ends, "sample", LOG, sampled="at_ms", asked="at_ms")
    sample, committed, at_ms = F.col("sample"), F.col("committed_offset"), F.col("at_ms")
    share = F.try_divide(at_ms - sample.at_ms, sample.next_ms - sample.at_ms)
    grown = F.floor(share * F.try_subtract(sample.next_offset, sample.end_offset) + 0.5)
    even = F.try_add(sample.end_offset, grown)
    between = F.when(even.isNotNull(), F.least(F.greatest(even, committed), sample.next_offset))
    lasting = at_ms - sample.at_ms <= longest // _MS
    end = F.when(sample.next_ms.isNotNull(), between).when(lasting, sample.end_offset)
    ended = F.col("end_offset")
    return as_of.withColumns({"end_offset": end, "life": sample.life}).withColumns(
        {
            "lag": F.when(ended >= committed, F.try_subtract(ended, committed)).when(ended < committed, 0),
            "negative": F.when(ended < committed, 1).otherwise(0).cast("bigint"),
        }
    )


def _minute(at_ms: str) -> Column:
    return (F.col(at_ms) - F.pmod(F.col(at_ms), F.lit(_MINUTE_MS))).alias("minute_ms")
