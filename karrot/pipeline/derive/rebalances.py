"""Makes ``rebalances``, and the owner of each partition over time, from the records of a group's metadata."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.schemas_and_conversions import GROUP, PARTITION, REBALANCES, columns_of

_STATE: Final = ("generation", "protocol", "leader")
_RECORD: Final = ("log_ts_ms", "log_offset")
_FOREVER_MS: Final = 2**63 - 1


def rebalances(members: DataFrame) -> DataFrame:
    """Make ``rebalances`` from ``members``: a row for each record whose generation differs from the record before.

    A partition moved if its owner differs from its owner in the record before. "No owner" also differs from an owner.
    Two members are the same if their instance ids are equal or, without instance ids, if their member ids are. So a
    consumer that restarts without an instance id is another member. The record of a deleted group has no generation and
    no row.
    """
    in_log = Window.partitionBy(*GROUP).orderBy(*_RECORD)
    changed = ~F.col("generation").eqNullSafe(F.lag("generation").over(in_log))
    # Partitions that are in only one of the two sets, or have another owner in the other set.
    owned, before = F.col("owned"), F.col("owned_before")
    differing = F.array_union(F.array_except(owned, before), F.array_except(before, owned))
    partitions = F.array_distinct(F.transform(differing, lambda pair: F.struct(pair.topic, pair.partition)))
    moved = F.when(F.col("was_known"), F.size(partitions))
    compared = _records(members).withColumns(
        {
            "changed": changed,
            "was_known": F.lag(F.lit(True), 1, False).over(in_log),
            "owned_before": F.lag("owned").over(in_log),
        }
    )
    return (
        compared.where(F.col("changed") & F.col("generation").isNotNull())
        .select("*", F.timestamp_millis("log_ts_ms").alias("at"), moved.cast("int").alias("moved_partitions"))
        .select(*columns_of(REBALANCES), F.to_date("at").alias("day"))
    )


def _records(members: DataFrame) -> DataFrame:
    """Make a row per metadata record of a group; ``owned`` is the set of the group's partitions with their owners."""
    who = F.coalesce("instance_id", "member_id")
    pair = F.struct("topic", "partition", who.alias("owner"))
    return members.groupBy(*GROUP, *_RECORD, *_STATE).agg(
        F.count_distinct("member_id").cast("int").alias("members"),
        F.collect_set(F.when(F.col("topic").isNotNull(), pair)).alias("owned"),
    )


def owners(members: DataFrame) -> DataFrame:
    """Make ``cluster``, ``consumer``, ``topic``, ``partition``, ``owner``, ``from_ms``, ``until_ms`` from ``members``.

    An assignment holds until the group's next record. The owner is the member's host, as in Burrow. If the host is
    unknown, the owner is the client id; without a client id, it is the member id.
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
