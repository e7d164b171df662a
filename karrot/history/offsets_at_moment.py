"""Finds the newest commits, log ends and members of groups as of a moment.

This module reads the tables that streaming jobs write. So an answer includes the newest batch, and does not depend on
``derive``. A record that was written twice counts once, because each query asks for the newest record.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from karrot.event import ClusterPartition, GroupKey, OffsetCommit, lag_at
from karrot.history.duckdb_reader import Duck, Row, named
from karrot.history.moments import epoch_ms, moment_of
from karrot.history.results import GroupDescription, PartitionDescription, StaleGroups, StalePartition, UnclearGroup

_DAY: Final = timedelta(days=1)
KEY: Final = "(log_ts_ms::HUGEINT * 9223372036854775808 + log_offset)"
"""SQL that orders records by time, and within a millisecond by offset.

Offsets alone are not enough, because offsets begin at 0 again when the topic is created again.
"""


class OffsetHistory(NamedTuple):
    """The commits before a partition's newest record.

    ``last_offset`` is the newest committed offset, even if it was deleted later. ``offset_then`` is the offset at the
    earlier moment ``then_ms``. Without a commit up to the requested moment, both are those of the first commit.
    """

    expire_ms: int | None
    last_offset: int | None
    offset_then: int | None
    then_ms: int | None


class LogGrowth(NamedTuple):
    """The log start and log end of a partition in its newest sample, and in an earlier sample (``…_then``).

    The earlier sample is the newest one that is older by at least the requested time. Without such a sample, it is the
    first sample.
    """

    start: int | None
    end: int
    seen_ms: int
    start_then: int | None
    end_then: int
    then_ms: int


class PartitionOwner(NamedTuple):
    """The member to which a partition is assigned."""

    consumer_id: str
    client_id: str | None
    host: str | None


class Owners(NamedTuple):
    """The owners in the newest record of a group's metadata. If ``is_gone``, this record deleted the group."""

    is_gone: bool
    members: int
    by_partition: Mapping[tuple[str, int], PartitionOwner]
    log_ms: int


@dataclass(frozen=True, slots=True)
class LookBack:
    """A moment, and how long before this moment records are searched."""

    at: datetime
    length: timedelta

    @property
    def bounds(self) -> dict[str, object]:
        """The first and the last moment, both included, in milliseconds since 1970."""
        return {"since": epoch_ms(self.at - self.length), "at": epoch_ms(self.at)}

    def has(self, day: date) -> bool:
        return (self.at - self.length).astimezone(UTC).date() <= day <= self.at.astimezone(UTC).date()

    def shortened(self, most: timedelta) -> "LookBack":
        return LookBack(self.at, min(most, self.length))


_NEWEST = f"""
SELECT cluster, consumer, topic, partition, max(log_ts_ms), arg_max_null(IF(tombstone, NULL, "offset"), {KEY}){{more}}
FROM {{table}} WHERE log_ts_ms BETWEEN $since AND $at{{named}} GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)
_LAST = "SELECT max(log_ts_ms) FROM {table} WHERE log_ts_ms BETWEEN $since AND $at{named}"
_COMMITTED = 'NOT tombstone AND "offset" IS NOT NULL'
_PAST = f""",
  arg_max_null(expire_ts_ms, {KEY}),
  arg_max("offset", {KEY}) FILTER ({_COMMITTED}),
  arg_max("offset", {KEY}) FILTER ({_COMMITTED} AND log_ts_ms <= $then),
  arg_min("offset", log_ts_ms) FILTER ({_COMMITTED}),
  min(log_ts_ms) FILTER ({_COMMITTED})
"""


def commits(duck: Duck, look_back: LookBack, *, cluster: str | None, group: str | None) -> list[OffsetCommit]:
    """The newest record of every partition of every group."""
    words, asked = named(cluster, group)
    query = _NEWEST.replace("{named}", words).replace("{more}", "")
    rows = duck.rows("commits", look_back.has, query, asked | look_back.bounds)
    return [
        OffsetCommit(ClusterPartition(where, *part), consumer, offset, log_ms)
        for where, consumer, *part, log_ms, offset in rows
    ]


def last_commit(duck: Duck, look_back: LookBack, *, cluster: str | None, group: str | None) -> datetime | None:
    """The time of the newest record; ``None`` if there is none."""
    words, asked = named(cluster, group)
    rows = duck.rows("commits", look_back.has, _LAST.replace("{named}", words), asked | look_back.bounds)
    return next((moment_of(newest) for (newest,) in rows if newest is not None), None)


def pasts(
    duck: Duck, look_back: LookBack, then: datetime, *, cluster: str | None, group: str | None
) -> list[tuple[OffsetCommit, OffsetHistory]]:
    """The newest record of each partition of each group, with its history; ``then`` is the history's earlier moment."""
    words, asked = named(cluster, group)
    asked |= look_back.bounds | {"then": epoch_ms(then)}
    rows = duck.rows("commits", look_back.has, _NEWEST.replace("{named}", words).replace("{more}", _PAST), asked)
    return [_past(row, epoch_ms(then)) for row in rows]


def _past(row: Row, asked_ms: int) -> tuple[OffsetCommit, OffsetHistory]:
    cluster, group, topic, partition, log_ms, offset, expire_ms, last, then, first, first_ms = row
    commit = OffsetCommit(ClusterPartition(cluster, topic, partition), group, offset, log_ms)
    known = (first, first_ms) if then is None else (then, asked_ms)
    return commit, OffsetHistory(expire_ms, last, *known)


_SAMPLES = {
    "ends": "SELECT cluster, topic, partition, start_offset, end_offset, observed_at_ms FROM {table}",
    "partitions": """SELECT cluster, topic, partition, NULL::BIGINT AS start_offset,
    end_offset::HUGEINT + current_lag AS end_offset, epoch_ms(observed_at) AS observed_at_ms FROM {table}""",
}
"""The sources of log-end samples: polls of ``karrot pipeline offsets``, or offsets and lags of Burrow's verdicts."""

_ENDS = """
WITH asked AS (SELECT unnest($clusters::VARCHAR[]) AS cluster, unnest($topics::VARCHAR[]) AS topic),
samples AS (
  FROM ({samples}) SEMI JOIN asked USING (cluster, topic)
  WHERE observed_at_ms BETWEEN $since AND $at AND end_offset IS NOT NULL
),
newest AS (
  SELECT cluster, topic, partition, max(observed_at_ms) AS seen,
    arg_max({'start': start_offset, 'end': end_offset}, observed_at_ms) AS offsets
  FROM samples GROUP BY ALL
)
SELECT cluster, topic, partition, any_value(newest.seen), any_value(newest.offsets),
  coalesce(
    arg_max({'start': start_offset, 'end': end_offset, 'at': observed_at_ms}, observed_at_ms)
      FILTER (observed_at_ms <= newest.seen - $before),
    arg_min({'start': start_offset, 'end': end_offset, 'at': observed_at_ms}, observed_at_ms)
  )
FROM samples JOIN newest USING (cluster, topic, partition) GROUP BY ALL
"""


def ends(
    duck: Duck, look_back: LookBack, places: Collection[ClusterPartition], *, before: timedelta = timedelta()
) -> dict[ClusterPartition, LogGrowth]:
    """The newest log-end sample of each partition of these topics, and a sample that is older by ``before`` or more.

    Polls are frequent, so older days are searched only for partitions without a sample on the newest days. For
    partitions that were never polled, the samples come from Burrow's verdicts, if there are any.
    """
    found: dict[ClusterPartition, LogGrowth] = {}
    for table in _SAMPLES:
        for back in dict.fromkeys((look_back.shortened(before + _DAY), look_back)):
            if missing := [place for place in places if place not in found]:
                found = _ends(duck, table, back, missing, before) | found
    return found


def _ends(
    duck: Duck, table: str, look_back: LookBack, places: Collection[ClusterPartition], before: timedelta
) -> dict[ClusterPartition, LogGrowth]:
    topics = sorted({(place.cluster, place.topic) for place in places})
    asked = look_back.bounds | {
        "clusters": [cluster for cluster, _ in topics],
        "topics": [topic for _, topic in topics],
        "before": before // timedelta(milliseconds=1),
    }
    rows = duck.rows(table, look_back.has, _ENDS.replace("{samples}", _SAMPLES[table]), asked)
    return {
        ClusterPartition(cluster, topic, partition): LogGrowth(
            offsets["start"], offsets["end"], seen, then["start"], then["end"], then["at"]
        )
        for cluster, topic, partition, seen, offsets, then in rows
    }


_OWNERS = f"""
SELECT cluster, consumer, version IS NULL, member_id, client_id, client_host, topic, partition, log_ts_ms
FROM (SELECT DISTINCT * FROM {{table}} WHERE log_ts_ms BETWEEN $since AND $at{{named}})
QUALIFY {KEY} = max({KEY}) OVER (PARTITION BY cluster, consumer)
"""  # noqa: S608 (constants; every value is bound)


def owners(duck: Duck, look_back: LookBack, *, cluster: str | None, group: str | None) -> dict[GroupKey, Owners]:
    """The owners of each group's partitions. Groups without a record of their metadata are left out."""
    words, asked = named(cluster, group)
    rows = duck.rows("members", look_back.has, _OWNERS.replace("{named}", words), asked | look_back.bounds)
    by_group: dict[GroupKey, list[Row]] = {}
    for where, consumer, *rest in rows:
        by_group.setdefault(GroupKey(where, consumer), []).append(tuple(rest))
    return {key: _owners(of_group) for key, of_group in by_group.items()}


def _owners(rows: list[Row]) -> Owners:
    members = {member for _, member, *_ in rows if member is not None}
    assigned = {
        (topic, partition): PartitionOwner(member, client, host)
        for _, member, client, host, topic, partition, _ in rows
        if member is not None and topic is not None
    }
    is_gone, *_, log_ms = rows[0]
    return Owners(is_gone, len(members), assigned, log_ms)


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


_MS = timedelta(milliseconds=1)


def stale(duck: Duck, look_back: LookBack, length: timedelta, *, cluster: str | None, group: str | None) -> StaleGroups:
    """Find the partitions that had been stale for at least ``length`` at a moment, in the order of their names."""
    newest = [each for each in commits(duck, look_back, cluster=cluster, group=group) if each.offset is not None]
    seen = ends(duck, look_back, {each.place for each in newest}, before=length)
    behind = [each for each in newest if each.place in seen and _waits(each, seen[each.place], length)]
    since = _since(duck, look_back, behind, cluster, group)
    still = (_stale(each, seen[each.place], since[number]) for number, each in enumerate(behind) if number in since)
    found = (each for each in still if each.looked_at - each.since >= length)
    return StaleGroups(
        look_back.at,
        _newest(each.at_ms for each in newest),
        _newest(each.seen_ms for each in seen.values()),
        tuple(sorted(found, key=lambda each: (each.cluster, each.group, each.topic, each.partition))),
    )


def _newest(moments_ms: Iterable[int]) -> datetime | None:
    newest = max(moments_ms, default=None)
    return None if newest is None else moment_of(newest)


def _waits(commit: OffsetCommit, sample: LogGrowth, length: timedelta) -> bool:
    was_seen = sample.then_ms <= sample.seen_ms - length // _MS
    return was_seen and commit.offset is not None and min(sample.end_then, sample.end) > commit.offset


_SINCE = f"""
WITH behind AS (
  SELECT unnest(range(len($groups::VARCHAR[]))) AS number, unnest($clusters::VARCHAR[]) AS cluster,
    unnest($groups::VARCHAR[]) AS consumer, unnest($topics::VARCHAR[]) AS topic,
    unnest($partitions::INTEGER[]) AS partition, unnest($offsets::BIGINT[]) AS stands
),
marked AS (
  SELECT number, log_ts_ms, {KEY} AS key, tombstone OR "offset" IS DISTINCT FROM stands AS differs
  FROM (FROM {{table}} WHERE log_ts_ms BETWEEN $since AND $at{{named}})
  JOIN behind USING (cluster, consumer, topic, partition)
),
moved AS (SELECT number, max(key) FILTER (differs) AS key FROM marked GROUP BY ALL)
SELECT number, min(log_ts_ms) FROM marked JOIN moved USING (number)
WHERE moved.key IS NULL OR marked.key > moved.key GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)


def _since(
    duck: Duck, look_back: LookBack, behind: Sequence[OffsetCommit], cluster: str | None, group: str | None
) -> dict[int, int]:
    """For each index in ``behind``, the time of the first consecutive commit with the partition's offset.

    An index is missing if a newer batch, which `commits` did not see yet, has another offset. That partition has moved.
    """
    if not behind:
        return {}
    words, asked = named(cluster, group)
    asked |= look_back.bounds | {
        "clusters": [each.place.cluster for each in behind],
        "groups": [each.group for each in behind],
        "topics": [each.place.topic for each in behind],
        "partitions": [each.place.partition for each in behind],
        "offsets": [each.offset for each in behind],
    }
    return dict(duck.rows("commits", look_back.has, _SINCE.replace("{named}", words), asked))


def _stale(commit: OffsetCommit, sample: LogGrowth, since: int) -> StalePartition:
    place: ClusterPartition = commit.place
    assert commit.offset is not None  # noqa: S101 (all commits in `behind` have an offset)
    return StalePartition(
        place.cluster,
        commit.group,
        place.topic,
        place.partition,
        commit.offset,
        sample.end,
        moment_of(since),
        moment_of(sample.seen_ms),
    )
