"""Adds new records of ``__consumer_offsets`` to the bucket of their consumer groups.

The rules are those of Burrow's storage (``core/internal/storage/inmemory.go``). Commits are processed as arrays.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from karrot.pipeline.evaluate.bucket_state import (
    BucketState,
    EvaluateRules,
    GroupMemory,
    LogEnds,
    Partitions,
    Texts,
    index_of,
    owners_of,
    source_key,
)
from karrot.pipeline.evaluate.ring_arrays import RingArrays, appended
from karrot.pipeline.window_arrays.judge_windows import Bools, CommitArrays, Ints, Segments, begins, stored

_NEVER_MS = 2**60


class NewCommits(NamedTuple):
    """Arrays of the new commits of a bucket's groups.

    ``group_key`` and ``topic_key`` are hashes of the names. ``order`` is the record's offset in ``__consumer_offsets``,
    ``at_ms`` the time at which the broker stored the record.
    """

    group_key: Ints
    topic_key: Ints
    partition: Ints
    order: Ints
    offset: Ints
    timestamp_ms: Ints
    at_ms: Ints
    group: Texts
    topic: Texts

    def taken(self, rows: Ints | Bools) -> "NewCommits":
        return NewCommits(*(column[rows] for column in self))  # type: ignore[arg-type]


class NewMembers(NamedTuple):
    """The newest metadata record of a group: the record's offset in ``__consumer_offsets``, its time, and the members.

    ``members`` is JSON as in `GroupMemory`.
    """

    group: str
    order: int
    at_ms: int
    members: str


class NewRecords(NamedTuple):
    """The new records of a bucket's groups. Keys are hashes of the groups' names.

    ``deleted`` has the record offset of each tombstone, ``members`` has the new members of each group.
    """

    commits: NewCommits
    deleted: Mapping[int, int]
    members: Mapping[int, NewMembers]


def take(state: BucketState, new: NewRecords, log_ends: LogEnds, asked: EvaluateRules) -> BucketState:
    """Add new records to the bucket, without a group's commits and members from before its deletion."""
    state = without_groups(_without_deleted_topics(state, log_ends), new.deleted)
    commits, known = _stored(new, log_ends, asked)
    groups, group = _with_new_groups(state.groups, commits)
    partitions, row = _with_new_partitions(state.partitions, commits, group)
    by_ring = np.argsort(row, kind="stable")
    arrays = CommitArrays(*(column[by_ring] for column in known._replace(segment=row)))
    rings, is_newest = appended(partitions.rings, arrays, asked.rules.min_distance)
    last = _last_of_each(group[by_ring], arrays.order, np.flatnonzero(is_newest))
    # A group must expire even if a client's clock is years ahead.
    last_ms = np.minimum(arrays.timestamp_ms, arrays.seen_ms)[last]
    for at, timestamp_ms in zip(group[by_ring][last].tolist(), last_ms.tolist(), strict=True):
        groups[at] = groups[at]._replace(last_commit_ms=timestamp_ms)
    # When a group commits on a partition that is not in its list, list all partitions of the topic.
    for new_row in range(len(state.partitions.group), len(partitions.group)):
        listed, topic = groups[int(partitions.group[new_row])].listed, str(partitions.topic[new_row])
        if int(partitions.partition[new_row]) >= listed.get(topic, 0):
            listed[topic] = log_ends.topics[topic]
    groups = _with_members(groups, new)
    by_group = np.argsort(partitions.group, kind="stable")
    return BucketState(groups, partitions._replace(rings=rings).taken(by_group))


def without_groups(state: BucketState, keys: Collection[int]) -> BucketState:
    is_kept = np.array([each.key not in keys for each in state.groups], np.bool_)
    if is_kept.all():
        return state
    row = np.cumsum(is_kept) - 1
    partitions = state.partitions.taken(is_kept[state.partitions.group])
    groups = [each for each, stays in zip(state.groups, is_kept, strict=True) if stays]
    return BucketState(groups, partitions._replace(group=row[partitions.group]))


def _without_deleted_topics(state: BucketState, log_ends: LogEnds) -> BucketState:
    source = log_ends.source_of(source_key(state.partitions.topic_key, state.partitions.partition))
    for group in state.groups:
        for topic in [each for each in group.listed if each not in log_ends.topics]:
            del group.listed[topic]
    return state._replace(partitions=state.partitions.taken(source >= 0))


def _stored(new: NewRecords, log_ends: LogEnds, asked: EvaluateRules) -> tuple[NewCommits, CommitArrays]:
    """Return the commits that Burrow's storage keeps, sorted by partition and record offset, and their arrays."""
    commits = new.commits
    source = log_ends.source_of(source_key(commits.topic_key, commits.partition))
    is_counted = (source >= 0) & (commits.order > _places_of(commits.group_key, new.deleted))
    ring_key = _ring_key(commits.group_key, commits.topic_key, commits.partition)
    rows = np.flatnonzero(is_counted)
    rows = rows[np.lexsort((commits.order[rows], ring_key[rows]))]
    commits, source = commits.taken(rows), source[rows]
    is_first = begins(ring_key[rows])
    first_ms = log_ends.ends.observed_ms[np.searchsorted(log_ends.ends.source, source)]
    # A commit before the first log end gets its lag from this log end.
    arrays = CommitArrays(
        segment=np.arange(len(rows)),
        seen_ms=np.maximum(commits.at_ms, first_ms),
        order=commits.order,
        offset=commits.offset,
        timestamp_ms=commits.timestamp_ms,
        end=np.zeros(len(rows), np.int64),
    )
    # Each commit is its own segment, so that `stored` says which commits it kept.
    segments = Segments(source, np.full(len(rows), _NEVER_MS))
    kept = stored(arrays, log_ends.ends, segments, asked.expire_group)
    is_repeated = ~is_first[kept.segment] & ~begins(kept.order)
    kept = CommitArrays(*(column[~is_repeated] for column in kept))
    return commits.taken(kept.segment), kept


def _places_of(group_key: Ints, deleted: Mapping[int, int]) -> Ints:
    """Return the record offset of each group's tombstone; -1 for a group without a tombstone."""
    keys, places = np.array(sorted(deleted.items()), np.int64).reshape(-1, 2).T
    return np.append(places, -1)[index_of(keys, group_key)]


def _with_new_groups(groups: list[GroupMemory], commits: NewCommits) -> tuple[list[GroupMemory], Ints]:
    keys, first, inverse = np.unique(commits.group_key, return_index=True, return_inverse=True)
    known = {each.key: row for row, each in enumerate(groups)}
    made = [*groups]
    rows = np.zeros(len(keys), np.int64)
    for number, (key, commit) in enumerate(zip(keys.tolist(), first.tolist(), strict=True)):
        if key not in known:
            known[key] = len(made)
            made.append(GroupMemory.of(key, str(commits.group[commit])))
        rows[number] = known[key]
    return made, rows[inverse]


def _with_members(groups: list[GroupMemory], new: NewRecords) -> list[GroupMemory]:
    known = {each.key: row for row, each in enumerate(groups)}
    made = [*groups]
    for key, newest in new.members.items():
        if newest.order <= new.deleted.get(key, -1):
            continue
        if key not in known:
            made.append(GroupMemory.of(key, newest.group))
        row = known.setdefault(key, len(made) - 1)
        group = made[row]._replace(members=newest.members, members_ms=newest.at_ms)
        if owned := {topic for topic, _ in owners_of(newest.members)}:  # a group without members leaves no topic
            since = {topic: group.unread.get(topic, newest.at_ms) for topic in group.listed if topic not in owned}
            group = group._replace(unread=since)
        made[row] = group
    return made


def _with_new_partitions(partitions: Partitions, commits: NewCommits, group: Ints) -> tuple[Partitions, Ints]:
    keys, first, inverse = np.unique(
        _ring_key(group, commits.topic_key, commits.partition), return_index=True, return_inverse=True
    )
    known = _ring_key(partitions.group, partitions.topic_key, partitions.partition)
    by_key = np.argsort(known)
    rows = np.append(by_key, -1)[index_of(known[by_key], keys)]
    new = np.flatnonzero(rows < 0)
    rows[new] = len(known) + np.arange(len(new))
    each = first[new]
    added = Partitions(
        group[each],
        commits.topic_key[each],
        commits.topic[each],
        commits.partition[each],
        RingArrays.empty(len(new), partitions.rings.intervals),
    )
    return partitions.joined(added), rows[inverse]


def _ring_key(group: Ints, topic_key: Ints, partition: Ints) -> Ints:
    return source_key(source_key(topic_key, partition), group)


def _last_of_each(group: Ints, order: Ints, rows: Ints) -> Ints:
    rows = rows[np.lexsort((order[rows], group[rows]))]
    last = np.ones(len(rows), np.bool_)
    last[:-1] = group[rows[1:]] != group[rows[:-1]]
    return rows[last]
