"""When a group was gone for Burrow: deleted in Kafka, or silent for so long that it was forgotten."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.replay.group_statuses import group_key
from karrot.pipeline.replay.verdicts import VerdictTimes

_GROUP = ("cluster", "consumer")


def deletions(members: DataFrame) -> DataFrame:
    """``cluster``, ``consumer`` and ``at_ms`` of each record that says that a group is gone."""
    return members.where(F.col("version").isNull()).select(*_GROUP, F.col("log_ts_ms").alias("at_ms"))


def silences(commits: DataFrame, span: VerdictTimes, expire_group: int) -> DataFrame:
    """``cluster``, ``consumer`` and ``at_ms`` of each evaluation that found the newest commit too old.

    What counts is the timestamp of the commit that came last, once for each evaluation that it came before. Burrow
    evaluates from the first commit on, as is assumed here, whether anybody asks for it or not.
    """
    seen_s = F.floor(F.col("log_ts_ms") / 1000)
    fresh = commits.where(~F.col("tombstone") & (F.col("commit_ts_ms") >= (seen_s - expire_group) * 1000))
    looked_at = _up(F.ceil(F.col("log_ts_ms") / 1000), span.every)
    newest = (
        fresh.groupBy(*_GROUP, looked_at.alias("look"))
        .agg(F.max_by("commit_ts_ms", "log_offset").alias("last_ms"))
        .withColumn("next_look", F.lead("look", 1, span.last + 1).over(Window.partitionBy(*_GROUP).orderBy("look")))
    )
    too_old = _up(F.floor(F.col("last_ms") / 1000) + expire_group + 1, span.every)
    return (
        newest.withColumn("gone", F.greatest(too_old, "look"))
        .where(F.col("gone") < F.col("next_look"))
        .select(*_GROUP, (F.col("gone") * 1000).alias("at_ms"))
    )


def by_group(*found: DataFrame) -> dict[int, list[int]]:
    """All moments of each group, by its `group_key`, in order: a group is seldom gone."""
    moments: dict[int, set[int]] = {}
    for group, at_ms in (row for one in found for row in one.select(group_key(), "at_ms").collect()):
        moments.setdefault(group, set()).add(at_ms)
    return {group: sorted(at) for group, at in moments.items()}


def _up(seconds: Column, every: int) -> Column:
    return F.ceil(seconds / every) * every
