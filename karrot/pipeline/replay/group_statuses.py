"""Makes the status runs of each group from the changes in its partitions, and finds when a group was gone.

A status run is a time in which a group has one status. For Burrow, a group is gone if it was deleted in Kafka, or if
its newest commit is so old that Burrow forgot the group.

During the computation, a group is a number, because names on all commits would be slow. The few status runs get the
names at the end.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.event import Status
from karrot.pipeline.replay.verdicts_by_rules import VerdictTimes
from karrot.pipeline.store.shared_columns import GROUP

_GROUP = ("rules", "group_key")
_COUNTS = ("known", "warn", "err")


def group_key() -> Column:
    """The number of a row's group: a hash of ``cluster`` and ``consumer``."""
    return F.xxhash64("cluster", "consumer").alias("group_key")


def statuses(changes: DataFrame, commits: DataFrame, last_ms: int) -> DataFrame:
    """Make the status runs of each group, for each set of rules. The status follows from the worst partition.

    A run lasts until the next run. The last run (``is_open``) lasts until ``last_ms``. While a group is gone, it has no
    run. The names of the groups come from ``commits``.
    """
    names = commits.select("cluster", "consumer").distinct().withColumn("group_key", group_key())
    at = Window.partitionBy(*_GROUP).orderBy("at_ms")
    so_far = at.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    runs = (
        changes.groupBy(*_GROUP, "at_ms")
        .agg(*(F.sum(name).alias(name) for name in _COUNTS))
        .select(*_GROUP, "at_ms", *(F.sum(name).over(so_far).alias(name) for name in _COUNTS))
        .withColumn("status", _worst())
        .withColumn("before", F.lag("status").over(at))
        .where(~F.col("status").eqNullSafe(F.col("before")))
        .withColumn("next_ms", F.lead("at_ms").over(at))
        .where(F.col("status").isNotNull())
        .select(
            *_GROUP,
            "status",
            F.col("at_ms").alias("from_ms"),
            F.coalesce("next_ms", F.lit(last_ms)).alias("to_ms"),
            F.col("next_ms").isNull().alias("is_open"),
        )
    )
    columns = ("rules", "cluster", "consumer", "status", "from_ms", "to_ms", "is_open")
    return runs.join(F.broadcast(names), "group_key").select(*columns)


def _worst() -> Column:
    worst = F.when(F.col("err") > 0, Status.ERR.name).when(F.col("warn") > 0, Status.WARN.name)
    return worst.when(F.col("known") > 0, Status.OK.name)


def deletions(members: DataFrame) -> DataFrame:
    """``cluster``, ``consumer`` and ``at_ms`` of each record that deletes a group."""
    return members.where(F.col("version").isNull()).select(*GROUP, F.col("log_ts_ms").alias("at_ms"))


def silences(commits: DataFrame, span: VerdictTimes, expire_group: int) -> DataFrame:
    """``cluster``, ``consumer`` and ``at_ms`` of each evaluation that found the group's newest commit too old.

    The newest commit is the one that arrived last; its timestamp decides. This function assumes that Burrow evaluates a
    group regularly from the group's first commit on.
    """
    seen_s = F.floor(F.col("log_ts_ms") / 1000)
    fresh = commits.where(~F.col("tombstone") & (F.col("commit_ts_ms") >= (seen_s - expire_group) * 1000))
    judged_at = _up(F.ceil(F.col("log_ts_ms") / 1000), span.every)
    by_time = Window.partitionBy(*GROUP).orderBy("judged_at")
    newest = (
        fresh.groupBy(*GROUP, judged_at.alias("judged_at"))
        .agg(F.max_by("commit_ts_ms", "log_offset").alias("last_ms"))
        .withColumn("next_at", F.lead("judged_at", 1, span.last + 1).over(by_time))
    )
    too_old = _up(F.floor(F.col("last_ms") / 1000) + expire_group + 1, span.every)
    return (
        newest.withColumn("gone", F.greatest(too_old, "judged_at"))
        .where(F.col("gone") < F.col("next_at"))
        .select(*GROUP, (F.col("gone") * 1000).alias("at_ms"))
    )


def by_group(*found: DataFrame) -> dict[int, list[int]]:
    """Collect the moments of each group, in order, by its `group_key`. They are few: groups rarely disappear."""
    moments: dict[int, set[int]] = {}
    for group, at_ms in (row for one in found for row in one.select(group_key(), "at_ms").collect()):
        moments.setdefault(group, set()).add(at_ms)
    return {group: sorted(at) for group, at in moments.items()}


def _up(seconds: Column, every: int) -> Column:
    return F.ceil(seconds / every) * every
