"""Makes ``rebalances``, and who had which partition from when to when, from the records of a group's metadata."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.schemas import REBALANCES, columns_of
from karrot.pipeline.store.shared_columns import GROUP, PARTITION

_TOLD: Final = ("generation", "protocol", "leader")
_RECORD: Final = ("log_ts_ms", "log_offset")
_FOREVER_MS: Final = 2**63 - 1


def rebalances(members: DataFrame) -> DataFrame:
    """``rebalances`` of ``members``: a row for the first record of each generation that is not that of the one before.

    A partition moved if it has another owner than in the record before, or one and had none, or none and had one. A
    member is the same if its instance id is or, without one, its member id: a consumer that restarts without an
    instance id is another member. A group that is gone has no generation, and its record is no row.
    """
    in_log = Window.partitionBy(*GROUP).orderBy(*_RECORD)
    changed = ~F.col("generation").eqNullSafe(F.lag("generation").over(in_log))
    compared = _records(members).withColumns(
        {
            "changed": changed,
            "was_known": F.lag(F.lit(True), 1, False).over(in_log),
            "owned_before": F.lag("owned").over(in_log),
        }
    )
    return (
        compared.where(F.col("changed") & F.col("generation").isNotNull())
        .select("*", F.timestamp_millis("log_ts_ms").alias("at"), _moved().alias("moved_partitions"))
        .select(*columns_of(REBALANCES), F.to_date("at").alias("day"))
    )


def _records(members: DataFrame) -> DataFrame:
    """A row per record of a group's metadata, with who ``owned`` what as a set of pairs."""
    who = F.coalesce("instance_id", "member_id")
    pair = F.struct("topic", "partition", who.alias("owner"))
    return members.groupBy(*GROUP, *_RECORD, *_TOLD).agg(
        F.count_distinct("member_id").cast("int").alias("members"),
        F.collect_set(F.when(F.col("topic").isNotNull(), pair)).alias("owned"),
    )


def _moved() -> Column:
    """How many partitions are in one set of pairs and not, with this owner, in the other."""
    owned, before = F.col("owned"), F.col("owned_before")
    differing = F.array_union(F.array_except(owned, before), F.array_except(before, owned))
    partitions = F.array_distinct(F.transform(differing, lambda pair: F.struct(pair.topic, pair.partition)))
    return F.when(F.col("was_known"), F.size(partitions)).cast("int")


def owners(members: DataFrame) -> DataFrame:
    """``cluster``, ``consumer``, ``topic``, ``partition``, ``owner``, ``from_ms`` and ``until_ms`` of ``members``.

    An assignment holds until the group's next record. The owner is named as Burrow does, by its host; one that does not
    tell it by its client id.
    """
    records = members.select(*GROUP, *_RECORD).distinct()
    next_ms = F.lead("log_ts_ms").over(Window.partitionBy(*GROUP).orderBy(*_RECORD))
    lasting = records.withColumn("until_ms", F.coalesce(next_ms, F.lit(_FOREVER_MS)))
    names = (F.when(F.col(name) != "", F.col(name)) for name in ("client_host", "client_id", "member_id"))
    assigned = members.where(F.col("topic").isNotNull()).select(*PARTITION, *_RECORD, F.coalesce(*names).alias("owner"))
    return (
        assigned.join(lasting, on=[*GROUP, *_RECORD])
        .groupBy(*PARTITION, F.col("log_ts_ms").alias("from_ms"), "until_ms")
        .agg(F.min("owner").alias("owner"))
    )
