"""Makes the runs of one status of each group from the changes in its partitions, and finds when a group was gone.

A group is gone for Burrow if it was deleted in Kafka, or was silent for so long that Burrow forgot it.

A group is a number until its few statuses are known: a name on each of its commits would be carried through it all.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.event import Status
from karrot.pipeline.replay.verdicts_by_rules import VerdictTimes
from karrot.pipeline.store.shared_columns import GROUP

_GROUP = ("rules", "group_key")
_COUNTS = ("known", "warn", "err")


def group_key() -> Column:
    """The number of the group of a row: a hash of its ``cluster`` and ``consumer``."""
    return F.xxhash64("cluster", "consumer").alias("group_key")


def statuses(changes: DataFrame, commits: DataFrame, last_ms: int) -> DataFrame:
    """The runs of one status of each group, for each set of rules: the worst of its partitions, as Burrow says it.

    A run lasts until the next one; the last of all, which ``is_open``, until ``last_ms``. While a group is gone it has
    no run. The names of the groups are those in ``commits``.
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
    """``cluster``, ``consumer`` and ``at_ms`` of each record that says that a group is gone."""
    return members.where(F.col("version").isNull()).select(*GROUP, F.col("log_ts_ms").alias("at_ms"))


def silences(commits: DataFrame, span: VerdictTimes, expire_group: int) -> DataFrame:
    """``cluster``, ``consumer`` and ``at_ms`` of each evaluation that found the newest commit too old.

    What counts is the timestamp of the commit that came last, once for each evaluation that it came before. Burrow
    evaluates from the first commit on, as is assumed here, whether anybody asks for it or not.
    """
    seen_s = F.floor(F.col("log_ts_ms") / 1000)
    fresh = commits.where(~F.col("tombstone") & (F.col("commit_ts_ms") >= (seen_s - expire_group) * 1000))
    looked_at = _up(F.ceil(F.col("log_ts_ms") / 1000), span.every)
    newest = (
        fresh.groupBy(*GROUP, looked_at.alias("look"))
        .agg(F.max_by("commit_ts_ms", "log_offset").alias("last_ms"))
        .withColumn("next_look", F.lead("look", 1, span.last + 1).over(Window.partitionBy(*GROUP).orderBy("look")))
    )
    too_old = _up(F.floor(F.col("last_ms") / 1000) + expire_group + 1, span.every)
    return (
        newest.withColumn("gone", F.greatest(too_old, "look"))
        .where(F.col("gone") < F.col("next_look"))
        .select(*GROUP, (F.col("gone") * 1000).alias("at_ms"))
    )


def by_group(*found: DataFrame) -> dict[int, list[int]]:
    """All moments of each group, by its `group_key`, in order: a group is seldom gone."""
    moments: dict[int, set[int]] = {}
    for group, at_ms in (row for one in found for row in one.select(group_key(), "at_ms").collect()):
        moments.setdefault(group, set()).add(at_ms)
    return {group: sorted(at) for group, at in moments.items()}


def _up(seconds: Column, every: int) -> Column:
    return F.ceil(seconds / every) * every
