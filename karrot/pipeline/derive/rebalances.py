"""Makes ``rebalances``, and the owner of each partition over time, from the records of a group's metadata."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.schemas_and_conversions import GROUP, PARTITION, REBALANCES, columns_of

FOREVER_MS: Final = 2**63 - 1


class TopicsRead(NamedTuple):
    """A time in which a group's members own partitions of these topics; of none if the group has no members."""

    from_ms: int
    until_ms: int
    topics: frozenset[str]


def group_records(members: DataFrame, day: date) -> DataFrame:
    """Make a row per metadata record of ``day``, and of the last millisecond with a record of the group before it.

    ``owned`` are the group's partitions with their members and owners. This assignment holds until ``until_ms``, the
    time of the group's next record. The owner is the member's host, as in Burrow. If the host is unknown, the owner is
    the client id; without a client id, it is the member id. ``before`` is from the group's record before.
    """
    before = F.max(F.when(F.col("day") < F.lit(day), F.col("log_ts_ms")))
    begins = members.groupBy(*GROUP).agg(F.coalesce(before, F.lit(0)).alias("begins_ms"))
    # Without the broadcast, Spark would sort the members of all days.
    needed = members.join(F.broadcast(begins), on=list(GROUP)).where("log_ts_ms >= begins_ms")
    names = (F.when(F.col(name) != "", F.col(name)) for name in ("client_host", "client_id", "member_id"))
    member, owner = F.coalesce("instance_id", "member_id").alias("member"), F.coalesce(*names).alias("owner")
    owned = F.when(F.col("topic").isNotNull(), F.struct("topic", "partition", member, owner))
    records = needed.groupBy(*GROUP, "log_ts_ms", "log_offset", "generation", "protocol", "leader").agg(
        F.size(F.collect_set("member_id")).alias("members"), F.sort_array(F.collect_set(owned)).alias("owned")
    )
    in_log = Window.partitionBy(*GROUP).orderBy("log_ts_ms", "log_offset")
    until_ms, previous = F.lead("log_ts_ms", 1, FOREVER_MS), F.lag(F.struct("generation", "owned"))
    return records.withColumns({"until_ms": until_ms.over(in_log), "before": previous.over(in_log)})


def newest(records: DataFrame) -> DataFrame:
    """Keep each group's newest record. The next day begins with these records."""
    return records.where(F.col("until_ms") == FOREVER_MS).drop("before")


def rebalances(records: DataFrame) -> DataFrame:
    """Make ``rebalances`` from `group_records`: a row for each whose generation differs from the record before.

    A partition moved if its member differs from its member in the record before. "No member" also differs from a
    member. Two members are the same if their instance ids are equal or, without instance ids, if their member ids are.
    So a consumer that restarts without an instance id is another member. The record of a deleted group has no
    generation and no row.
    """
    before = F.col("before")
    now, then = (
        F.transform(owned, lambda each: F.struct(each.topic, each.partition, each.member))
        for owned in (F.col("owned"), before.owned)
    )
    # Partitions that are in only one of the two sets, or have another member in the other set.
    differing = F.array_union(F.array_except(now, then), F.array_except(then, now))
    partitions = F.array_distinct(F.transform(differing, lambda each: F.struct(each.topic, each.partition)))
    moved = F.when(before.isNotNull(), F.size(partitions)).alias("moved_partitions")
    is_new = F.col("generation").isNotNull() & ~F.col("generation").eqNullSafe(before.generation)
    timed = records.where(is_new).select("*", F.timestamp_millis("log_ts_ms").alias("at"), moved)
    return timed.select(*columns_of(REBALANCES), F.to_date("at").alias("day"))


def owners(records: DataFrame) -> DataFrame:
    """Make the owners of each partition from `group_records`, with the time ``at_ms`` to before ``until_ms`` of each.

    A partition has no two owners at a time.
    """
    assigned = records.select(*GROUP, F.col("log_ts_ms").alias("at_ms"), "until_ms", F.inline("owned"))
    lasting = assigned.where("until_ms > at_ms")
    return lasting.groupBy(*PARTITION, "at_ms", "until_ms").agg(F.min("owner").alias("owner"))


def topics_read(records: DataFrame) -> Mapping[tuple[str, str], Sequence[TopicsRead]]:
    """Collect which topics the members of each group own over time, by cluster and consumer.

    Few records change the topics, so the result is small.
    """
    in_log = Window.partitionBy(*GROUP).orderBy("log_ts_ms", "log_offset")
    topics = F.array_distinct(F.transform("owned", lambda each: each.topic))
    listed = records.select(*GROUP, "log_ts_ms", "log_offset", topics.alias("topics"))
    changed = listed.withColumn("is_new", ~F.col("topics").eqNullSafe(F.lag("topics").over(in_log))).where("is_new")
    until_ms = F.lead("log_ts_ms", 1, FOREVER_MS).over(in_log)
    found = defaultdict[tuple[str, str], list[TopicsRead]](list)
    for row in changed.withColumn("until_ms", until_ms).orderBy("log_ts_ms", "log_offset").collect():
        found[row.cluster, row.consumer].append(TopicsRead(row.log_ts_ms, row.until_ms, frozenset(row.topics)))
    return found
