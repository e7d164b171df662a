"""Finds the newest commits, log ends and members of groups up to a time.

This module reads the tables that streaming jobs write. So an answer includes the newest batch, and does not depend on
``derive``. A record that was written twice counts once, because each query asks for the newest record.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from karrot.event import ClusterPartition, GroupKey
from karrot.history.answers_and_errors import (
    GroupDescription,
    PartitionDescription,
    StaleGroups,
    StalePartition,
    UnclearGroup,
)
from karrot.history.duckdb_reader import Names, Row, TablesAtOneTime
from karrot.history.time_ranges import epoch_ms, moment_of

_DAY: Final = timedelta(days=1)
_MS: Final = timedelta(milliseconds=1)
KEY: Final = "(log_ts_ms::HUGEINT * 9223372036854775808 + log_offset)"
"""SQL that orders records by time, and within a millisecond by offset.

Offsets alone are not enough, because offsets begin at 0 again when the topic is created again.
"""


class OffsetCommit(NamedTuple):
    """One record of ``__consumer_offsets`` with its time. ``offset`` is ``None`` for a tombstone."""

    place: ClusterPartition
    group: str
    offset: int | None
    at_ms: int

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.place.cluster, self.group)


def lag_at(log_end: int, seen_ms: int, offset: int, committed_ms: int) -> int | None:
    """Return the lag of a commit; ``None`` if the committed offset is past a log end that was read later."""
    return max(0, log_end - offset) if log_end >= offset or seen_ms < committed_ms else None


class LookBack(NamedTuple):
    """The records of the groups with these ``names``, from ``length`` before the time ``at`` up to ``at``."""

    tables: TablesAtOneTime
    at: datetime
    length: timedelta
    names: Names

    def has(self, day: date) -> bool:
        return (self.at - self.length).astimezone(UTC).date() <= day <= self.at.astimezone(UTC).date()

    def rows(self, table: str, query: str, **asked: object) -> list[Row]:
        """The rows of a query with ``$since`` and ``$at``, both included, in milliseconds since 1970."""
        bounds = {"since": epoch_ms(self.at - self.length), "at": epoch_ms(self.at)}
        return self.tables.rows(table, self.has, query, bounds | asked, self.names)

    def see_log_ends(self) -> None:
        """Choose the versions of the tables with log ends. Tables that are read first later have the newer batches."""
        for table in _SAMPLES:
            self.tables.days(table, self.has)


class OffsetHistory(NamedTuple):
    """The commits before a partition's newest record.

    ``last_offset`` is the newest committed offset, even if it was deleted later. ``offset_then`` is the offset at the
    earlier time ``then_ms``. Without a commit up to that time, ``offset_then`` and ``then_ms`` are those of the first
    commit.
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


class Owners(NamedTuple):
    """The owners in the newest record of a group's metadata. If ``is_gone``, this record deleted the group.

    ``by_partition`` has the consumer id, host and client id of a topic and partition.
    """

    is_gone: bool
    members: int
    by_partition: Mapping[tuple[str, int], tuple[str, str | None, str | None]]
    log_ms: int


_NEWEST = f"""
SELECT cluster, consumer, topic, partition, max(log_ts_ms), arg_max_null(IF(tombstone, NULL, "offset"), {KEY}){{more}}
FROM {{table}} WHERE log_ts_ms BETWEEN $since AND $at{{named}} GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)
_COMMITTED = 'NOT tombstone AND "offset" IS NOT NULL'
_PAST = f""",
  arg_max_null(expire_ts_ms, {KEY}),
  arg_max("offset", {KEY}) FILTER ({_COMMITTED}),
  arg_max("offset", {KEY}) FILTER ({_COMMITTED} AND log_ts_ms <= $then),
  arg_min("offset", log_ts_ms) FILTER ({_COMMITTED}),
  min(log_ts_ms) FILTER ({_COMMITTED})
"""


def commits(back: LookBack) -> list[OffsetCommit]:
    """Return the newest record of each group on each partition."""
    return [
        OffsetCommit(ClusterPartition(cluster, *part), group, offset, log_ms)
        for cluster, group, *part, log_ms, offset in back.rows("commits", _NEWEST.replace("{more}", ""))
    ]


def commits_with_history(back: LookBack, then: datetime) -> list[tuple[OffsetCommit, OffsetHistory]]:
    """The newest record of every partition of every group, with the commits before it and the offset at ``then``."""
    then_ms = epoch_ms(then)
    found = []
    for row in back.rows("commits", _NEWEST.replace("{more}", _PAST), then=then_ms):
        cluster, group, topic, partition, log_ms, offset, expire_ms, last, earlier, first, first_ms = row
        known = (first, first_ms) if earlier is None else (earlier, then_ms)
        commit = OffsetCommit(ClusterPartition(cluster, topic, partition), group, offset, log_ms)
        found.append((commit, OffsetHistory(expire_ms, last, *known)))
    return found


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
    back: LookBack, places: Collection[ClusterPartition], *, before: timedelta = timedelta()
) -> dict[ClusterPartition, LogGrowth]:
    """The newest log-end sample of each partition of these topics, and a sample that is older by ``before`` or more.

    Polls are frequent, so older days are searched only for partitions without a sample on the newest days. For
    partitions that were never polled, the samples come from Burrow's verdicts, if there are any.
    """
    found: dict[ClusterPartition, LogGrowth] = {}
    for table, samples in _SAMPLES.items():
        for length in dict.fromkeys((min(before + _DAY, back.length), back.length)):
            topics = sorted({(place.cluster, place.topic) for place in places if place not in found})
            if not topics:
                continue
            rows = back._replace(length=length).rows(
                table,
                _ENDS.replace("{samples}", samples),
                clusters=[cluster for cluster, _ in topics],
                topics=[topic for _, topic in topics],
                before=before // _MS,
            )
            for *place, seen, now, then in rows:
                growth = LogGrowth(now["start"], now["end"], seen, then["start"], then["end"], then["at"])
                found.setdefault(ClusterPartition(*place), growth)
    return found


_OWNERS = f"""
SELECT cluster, consumer, version IS NULL, member_id, client_host, client_id, topic, partition, log_ts_ms
FROM (SELECT DISTINCT * EXCLUDE (filename) FROM {{table}} WHERE log_ts_ms BETWEEN $since AND $at{{named}})
QUALIFY {KEY} = max({KEY}) OVER (PARTITION BY cluster, consumer)
"""  # noqa: S608 (constants; every value is bound)


def owners(back: LookBack) -> dict[GroupKey, Owners]:
    """The owners of each group's partitions. Groups without a record of their metadata are left out."""
    by_group: dict[GroupKey, list[Row]] = {}
    for cluster, group, *rest in back.rows("members", _OWNERS):
        by_group.setdefault(GroupKey(cluster, group), []).append(tuple(rest))
    found = {}
    for key, rows in by_group.items():
        members = [row for row in rows if row[1] is not None]
        assigned = {
            (topic, partition): (member, host, client)
            for _, member, host, client, topic, partition, _ in members
            if topic is not None
        }
        is_gone, *_, log_ms = rows[0]
        found[key] = Owners(is_gone, len({row[1] for row in members}), assigned, log_ms)
    return found


_LISTED = """
SELECT DISTINCT cluster, topic, partition, end_offset, end_offset::HUGEINT + current_lag, current_lag,
  NULL, nullif(owner, ''), nullif(client_id, ''), epoch_ms(end_ts), epoch_ms(observed_at)
FROM {table}
WHERE source IN ('rest', 'kafka') AND epoch_ms(observed_at) BETWEEN $since AND $at{named}
QUALIFY observed_at = max(observed_at) OVER (PARTITION BY cluster)
ORDER BY cluster, topic, partition
"""
"""The partitions in each cluster's newest event that lists all partitions of the group."""


def describe(back: LookBack, group: str) -> GroupDescription | None:
    """See `History.describe`. ``group`` is one of the names of ``back``."""
    newest, of_groups = commits(back), owners(back)
    clusters = {each.place.cluster for each in newest} | {key.cluster for key in of_groups}
    listed: dict[str, list[PartitionDescription]] = {}
    if not clusters:
        for where, *fields, committed_ms, observed_ms in back.rows("partitions", _LISTED):
            committed_at = None if committed_ms is None else moment_of(committed_ms)
            described = PartitionDescription._make((*fields, committed_at, moment_of(observed_ms)))
            listed.setdefault(where, []).append(described)
    if len(clusters | listed.keys()) > 1:
        raise UnclearGroup(f"{group!r} is in the clusters {', '.join(sorted(clusters | listed.keys()))}")
    cluster = next(iter(clusters | listed.keys()), None)
    if cluster is None:
        return None
    partitions, unlisted, members = listed.get(cluster, []), 0, None
    if not listed:
        owned = of_groups.get(GroupKey(cluster, group))
        # After a record deleted the classic group, consumers can go on with another protocol: the members are unknown.
        members = None if owned is None or owned.is_gone else owned.members
        assigned = owned.by_partition if owned else {}
        committed = {each.place: each for each in newest if each.offset is not None}
        places = committed.keys() | {ClusterPartition(cluster, *each) for each in assigned}
        seen = ends(back, places)
        unlisted = len(seen.keys() - places)
        for place in sorted(places):
            commit, sample = committed.get(place), seen.get(place)
            lag = None
            if commit and commit.offset is not None and sample:
                lag = lag_at(sample.end, sample.seen_ms, commit.offset, commit.at_ms)
            owner = assigned.get(place[1:], (None, None, None))
            times = commit and moment_of(commit.at_ms), sample and moment_of(sample.seen_ms)
            offsets = commit and commit.offset, sample and sample.end
            partitions.append(PartitionDescription._make((*place[1:], *offsets, lag, *owner, *times)))
    lags = [each.lag for each in partitions if each.lag is not None]
    return GroupDescription(
        cluster,
        group,
        back.at,
        sum(lags) if lags else None,
        len(partitions) - len(lags),
        unlisted + sum(each.current_offset is None for each in partitions),
        members,
        tuple(partitions),
    )


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
"""For each commit, the time of the first consecutive commit with the same offset."""


def stale(back: LookBack, length: timedelta) -> StaleGroups:
    """See `History.stale`. The partitions are in the order of their names."""
    records = commits(back)
    newest = [(each, each.offset) for each in records if each.offset is not None]
    seen = ends(back, {each.place for each, _ in newest}, before=length)
    behind = [
        (commit, offset, sample)
        for commit, offset in newest
        if (sample := seen.get(commit.place))
        and sample.then_ms <= sample.seen_ms - length // _MS
        and min(sample.end_then, sample.end) > offset
    ]
    rows: list[Row] = []
    if behind:
        rows = back.rows(
            "commits",
            _SINCE,
            clusters=[commit.place.cluster for commit, _, _ in behind],
            groups=[commit.group for commit, _, _ in behind],
            topics=[commit.place.topic for commit, _, _ in behind],
            partitions=[commit.place.partition for commit, _, _ in behind],
            offsets=[offset for _, offset, _ in behind],
        )
    first_ms: dict[int, int] = dict(rows)
    found = []
    for number, (commit, offset, sample) in enumerate(behind):
        if sample.seen_ms - first_ms[number] >= length // _MS:
            (cluster, topic, partition), times = commit.place, map(moment_of, (first_ms[number], sample.seen_ms))
            found.append(StalePartition(cluster, commit.group, topic, partition, offset, sample.end, *times))
    committed_at = newest_moment(each.at_ms for each in records)
    looked_at = newest_moment(each.seen_ms for each in seen.values())
    return StaleGroups(back.at, committed_at, looked_at, tuple(sorted(found)))


def newest_moment(times_ms: Iterable[int]) -> datetime | None:
    newest = max(times_ms, default=None)
    return None if newest is None else moment_of(newest)
