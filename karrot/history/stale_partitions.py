"""Finds stale partitions at a moment, by the rule of ``karrot pipeline stale`` (docs/offsets-jobs.md)."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from karrot.event import ClusterPartition, OffsetCommit
from karrot.history.duckdb_reader import Duck, named
from karrot.history.moments import moment_of
from karrot.history.offsets_at_moment import KEY, LogGrowth, LookBack, commits, ends
from karrot.history.results import StaleGroups, StalePartition

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
    """Whether the partition had unread messages ``length`` ago and still has some."""
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
