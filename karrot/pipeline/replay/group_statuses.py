"""From what changed in partitions to the status of whole groups over time.

A group is a number until its few statuses are known: a name on each of its commits would be carried through it all.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.event import Status

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
