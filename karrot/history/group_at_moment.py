"""Describes a group at a moment as ``kafka-consumer-groups --describe`` does: offsets, lags and owners.

If the tables have no records of ``__consumer_offsets`` for a group, the values come from the newest event of resync or
``karrot watch``. Such an event lists all partitions of the group. An event of a webhook lists only the bad ones.
"""

from karrot.event import ClusterPartition, GroupKey, OffsetCommit, lag_at
from karrot.history.duckdb_reader import Duck, Row, named
from karrot.history.moments import moment_of
from karrot.history.offsets_at_moment import LogGrowth, LookBack, Owners, commits, ends, owners
from karrot.history.results import GroupDescription, PartitionDescription, UnclearGroup


def describe(duck: Duck, look_back: LookBack, group: str, cluster: str | None) -> GroupDescription | None:
    """Describe a group's partitions with their offsets, lags and owners; ``None`` if the tables do not have the group.

    If the tables have no records of the group, the values come from its newest event of resync or watch. Raises
    `UnclearGroup` if several clusters have the group and ``cluster`` is ``None``.
    """
    newest = commits(duck, look_back, cluster=cluster, group=group)
    of_groups = owners(duck, look_back, cluster=cluster, group=group)
    by_records = {each.place.cluster for each in newest} | {key.cluster for key in of_groups}
    listed = {} if by_records else _listed(duck, look_back, group, cluster)
    clusters = sorted(by_records | listed.keys())
    if len(clusters) > 1:
        raise UnclearGroup(f"{group!r} is in the clusters {', '.join(clusters)}")
    if not clusters:
        return None
    [where] = clusters
    if listed:
        return _described(where, group, look_back, listed[where])
    owned = of_groups.get(GroupKey(where, group))
    committed = {each.place: each for each in newest if each.offset is not None}
    places = committed.keys() | {ClusterPartition(where, *each) for each in (owned.by_partition if owned else ())}
    seen = ends(duck, look_back, places)
    partitions = tuple(_partition(place, committed.get(place), seen.get(place), owned) for place in sorted(places))
    unlisted = len(seen.keys() - places)
    # After a record deleted the classic group, consumers can go on with another protocol. So the members are unknown.
    members = None if owned is None or owned.is_gone else owned.members
    return _described(where, group, look_back, partitions, unlisted=unlisted, members=members)


def _described(
    cluster: str,
    group: str,
    look_back: LookBack,
    partitions: tuple[PartitionDescription, ...],
    *,
    unlisted: int = 0,
    members: int | None = None,
) -> GroupDescription:
    """Make the description with its sums. ``unlisted`` counts the partitions that have no owner and no commit."""
    lags = [each.lag for each in partitions if each.lag is not None]
    return GroupDescription(
        cluster,
        group,
        look_back.at,
        sum(lags) if lags else None,
        len(partitions) - len(lags),
        unlisted + sum(each.current_offset is None for each in partitions),
        members,
        partitions,
    )


def _partition(
    place: ClusterPartition, commit: OffsetCommit | None, sample: LogGrowth | None, owned: Owners | None
) -> PartitionDescription:
    owner = owned.by_partition.get(place[1:]) if owned else None
    offset, end = commit and commit.offset, sample and sample.end
    return PartitionDescription(
        place.topic,
        place.partition,
        offset,
        end,
        lag_at(sample.end, sample.seen_ms, offset, commit.at_ms) if offset is not None and sample and commit else None,
        owner and owner.consumer_id,
        owner and owner.host,
        owner and owner.client_id,
        None if commit is None else moment_of(commit.at_ms),
        None if sample is None else moment_of(sample.seen_ms),
    )


_LISTED = """
SELECT DISTINCT cluster, topic, partition, end_offset, current_lag, owner, client_id, epoch_ms(end_ts),
  epoch_ms(observed_at)
FROM {table}
WHERE source IN ('rest', 'kafka') AND epoch_ms(observed_at) BETWEEN $since AND $at{named}
QUALIFY observed_at = max(observed_at) OVER (PARTITION BY cluster)
ORDER BY cluster, topic, partition
"""


def _listed(
    duck: Duck, look_back: LookBack, group: str, cluster: str | None
) -> dict[str, tuple[PartitionDescription, ...]]:
    """The partitions of each cluster's newest event that lists all partitions of the group."""
    words, asked = named(cluster, group)
    rows = duck.rows("partitions", look_back.has, _LISTED.replace("{named}", words), asked | look_back.bounds)
    clusters = dict.fromkeys(row[0] for row in rows)
    return {where: tuple(_listed_partition(row) for row in rows if row[0] == where) for where in clusters}


def _listed_partition(row: Row) -> PartitionDescription:
    _, topic, partition, offset, lag, owner, client, committed_ms, observed_ms = row
    return PartitionDescription(
        topic,
        partition,
        offset,
        None if offset is None or lag is None else offset + lag,
        lag,
        None,
        owner or None,
        client or None,
        None if committed_ms is None else moment_of(committed_ms),
        moment_of(observed_ms),
    )
