"""Derives the table ``partition_lag_minute``: the lag of each partition from commits and log ends, without Burrow.

A partition has a row for every minute with a commit of its group or a log-end sample. The minutes of samples are
needed, because the lag of a consumer that has stopped keeps growing. A partition that a member owns has such rows too,
with or without a commit. The states are those of `karrot.watch`, and so are the rules.
"""

from datetime import timedelta
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.event import BEYOND_END, LEFT, NEVER_COMMITTED
from karrot.pipeline.derive.lag_seconds import seconds_behind, with_last
from karrot.pipeline.derive.rebalances import FOREVER_MS
from karrot.pipeline.schemas_and_conversions import GROUP, LOG, PARTITION, PARTITION_LAG_MINUTE, columns_of

FORGOTTEN: Final = timedelta(days=31)
"""The highest age of a partition's last commit. Older partitions are left out: a tombstone was probably missed."""

_LEFT_AFTER_MS: Final = 100_000
"""As in `karrot.watch` by default: a topic is left if no member reads it, and no offset moves, for ten polls."""

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

    Lag is the log end at the row's timestamp minus the position: the committed offset, or the log start if Kafka has
    deleted the messages before it. Lag in seconds is how long ago the log end was at the position; if that was before
    the first sample, it is unknown. A sample is valid for ``longest``. A row with a ``state`` has no lag.
    """
    is_seen = (F.col("lag") == 0) | (F.col("crossed.end_offset") == F.col("position"))
    method = F.when(F.col("lag_seconds").isNull(), "unknown").when(is_seen, "observed").otherwise("interpolated")
    minutes = _minutes(commits, before, ends, owners)
    lasting = with_last(minutes, owners, "owner", PARTITION, sampled="at_ms", asked="at_ms")
    owner = F.when(F.col("at_ms") < F.col("owner.until_ms"), F.col("owner.owner"))
    lags = _with_end(lasting.withColumn("owner", owner), ends, longest)
    timed = with_last(lags, ends, "crossed", (*LOG, "life"), sampled="end_offset", asked="position")
    topics = commits.select(*GROUP, "topic").union(before.select(*GROUP, "topic")).distinct()
    stated = _with_state(timed, _left(topics, owners))
    lag, seconds = (F.when(F.col("state").isNull(), each) for each in (F.col("lag"), seconds_behind()))
    complete = stated.withColumns({"lag": lag, "lag_seconds": seconds}).withColumn("method", method)
    return complete.select(*columns_of(PARTITION_LAG_MINUTE), F.to_date("minute").alias("day"))


def carried(rows: DataFrame) -> DataFrame:
    """Return each partition's newest commit in ``partition_lag_minute``. The next day begins with these commits."""
    commit = F.struct(F.col("committed_offset").alias("offset"), F.unix_millis("committed_at").alias("at_ms"))
    newest = F.max_by(commit, "minute")
    kept = rows.groupBy(*PARTITION).agg(newest.alias("committed"))
    return kept.where(F.col("committed.offset").isNotNull())


def _minutes(commits: DataFrame, before: DataFrame, ends: DataFrame, owners: DataFrame) -> DataFrame:
    """Make a row, at the time ``at_ms``, per partition and minute with a commit or a log-end sample."""
    newest = _newest_of_minute(commits)
    places = (each.select(*PARTITION) for each in (newest, before, owners))
    known = reduce(DataFrame.unionByName, places).distinct()
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
    return as_of.select(
        *PARTITION,
        F.timestamp_millis("minute_ms").alias("minute"),
        at_ms.alias("at_ms"),
        F.timestamp_millis(at_ms).alias("as_of"),
        F.col("newest.offset").alias("committed_offset"),
        F.when(F.col("newest.offset").isNotNull(), F.timestamp_millis("newest.at_ms")).alias("committed_at"),
        F.col("committed").isNotNull().alias("has_record"),
        "commits",
    )


def _newest_of_minute(commits: DataFrame) -> DataFrame:
    record = F.struct(F.when(~F.col("tombstone"), F.col("offset")).alias("offset"), F.col("log_ts_ms").alias("at_ms"))
    return commits.groupBy(*PARTITION, _minute("log_ts_ms")).agg(
        F.max_by(record, F.struct("log_ts_ms", "log_offset")).alias("committed"),
        F.count_if(~F.col("tombstone")).alias("commits"),
    )


def _with_end(rows: DataFrame, ends: DataFrame, longest: timedelta) -> DataFrame:
    """Add ``start_offset``, ``end_offset``, ``position``, ``lag``, ``negative``, ``is_beyond`` and the log's ``life``.

    Between two samples, the log end is interpolated, as if the log grew evenly. It is at least the committed offset,
    because the log had reached that offset. A commit beyond the next sample, or beyond the last one, is ``negative``.
    If the newest sample came after the commit, the offset ``is_beyond`` the log end: the topic was created again, or
    the offset was set by hand. Otherwise the sample is too old, and the lag is 0. If the difference of two numbers
    exceeds 64 bits, the lag is unknown.
    """
    as_of = with_last(rows, ends, "sample", LOG, sampled="at_ms", asked="at_ms")
    sample, committed, at_ms = F.col("sample"), F.col("committed_offset"), F.col("at_ms")
    share = F.try_divide(at_ms - sample.at_ms, sample.next_ms - sample.at_ms)
    grown = F.floor(share * F.try_subtract(sample.next_offset, sample.end_offset) + 0.5)
    even = F.try_add(sample.end_offset, grown)
    between = F.when(even.isNotNull(), F.least(F.greatest(even, committed), sample.next_offset))
    lasting = at_ms - sample.at_ms <= longest // _MS
    end = F.when(sample.next_ms.isNotNull(), between).when(lasting, sample.end_offset)
    polled = F.when(sample.next_ms.isNotNull(), sample.next_offset).when(
        sample.at_ms > F.unix_millis("committed_at"), sample.end_offset
    )
    position = F.when(committed.isNotNull(), F.greatest(committed, sample.start_offset))
    added = {"start_offset": sample.start_offset, "end_offset": end, "position": position, "life": sample.life}
    ended, position = F.col("end_offset"), F.col("position")
    return as_of.withColumns(added | {"is_beyond": end.isNotNull() & (polled < committed)}).withColumns(
        {
            "lag": F.when(ended >= position, F.try_subtract(ended, position)).when(ended < position, 0),
            "negative": F.when(ended < committed, 1).otherwise(0).cast("bigint"),
        }
    )


def _with_state(rows: DataFrame, left: DataFrame) -> DataFrame:
    """Add ``state``, and drop the rows of partitions without an owner that have no offset or are forgotten.

    If the offset was deleted in the minute of a row, the row stays.
    """
    committed, at_ms = F.col("committed_offset"), F.col("at_ms")
    silent_ms = at_ms - F.unix_millis("committed_at")
    is_kept = F.col("owner").isNotNull() | F.col("has_record") | (silent_ms <= FORGOTTEN // _MS)
    since_ms = F.greatest("left.since_ms", F.unix_millis("committed_at"))
    is_left = (at_ms >= F.col("left.from_ms")) & (at_ms < F.col("left.until_ms"))
    keys = [rows[name] == left[name] for name in (*GROUP, "topic")]
    marked = rows.alias("row").join(F.broadcast(left.alias("left")), [*keys, is_left], "left")
    state = (
        F.when(F.col("left.from_ms").isNotNull() & (at_ms - since_ms >= _LEFT_AFTER_MS), LEFT)
        .when(F.col("is_beyond"), BEYOND_END)
        .when(committed.isNull() & F.col("owner").isNotNull(), NEVER_COMMITTED)
    )
    return marked.where(is_kept).select("row.*", state.alias("state"))


def _left(topics: DataFrame, owners: DataFrame) -> DataFrame:
    """Return the times in which a group's members own partitions, but none of a topic: ``from_ms``, ``until_ms``.

    ``since_ms`` is when a member last owned a partition of the topic, or ``from_ms``. A topic that was left stays left
    while the group has no members.
    """
    lasting = owners.withColumnRenamed("at_ms", "from_ms")
    held = lasting.select(*GROUP, "from_ms", "until_ms").distinct()
    read = lasting.select(*GROUP, "topic", "from_ms", F.lit(True).alias("is_read")).distinct()
    in_time = Window.partitionBy(*GROUP, "topic").orderBy("from_ms")
    known = topics.join(held, on=list(GROUP)).join(read, on=[*GROUP, "topic", "from_ms"], how="left")
    read_ms = F.max(F.when(F.col("is_read"), F.col("until_ms"))).over(in_time)
    # Spark computes a frame of all later rows in quadratic time, and one of all earlier rows in linear time.
    backwards = Window.partitionBy(*GROUP, "topic").orderBy(F.desc("from_ms"))
    later = backwards.rowsBetween(Window.unboundedPreceding, -1)
    again_ms = F.coalesce(F.min(F.when(F.col("is_read"), F.col("from_ms"))).over(later), F.lit(FOREVER_MS))
    unread = known.withColumns({"read_ms": read_ms, "again_ms": again_ms}).where(F.col("is_read").isNull())
    is_long = F.sum(F.least("until_ms", F.col("from_ms") + _LEFT_AFTER_MS) - F.col("from_ms")) >= _LEFT_AFTER_MS
    return unread.groupBy(*GROUP, "topic", "read_ms").agg(
        F.coalesce("read_ms", F.min("from_ms")).alias("since_ms"),
        F.min("from_ms").alias("from_ms"),
        F.when(is_long, F.max("again_ms")).otherwise(F.max("until_ms")).alias("until_ms"),
    )


def _minute(at_ms: str) -> Column:
    return (F.col(at_ms) - F.pmod(F.col(at_ms), F.lit(_MINUTE_MS))).alias("minute_ms")
