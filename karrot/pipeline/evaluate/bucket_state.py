"""Keeps the rings and incidents of the consumer groups of one bucket, and serializes them.

A bucket has all partitions of its groups. So a group's verdict needs no other bucket.
"""

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from karrot.burrow.notification_rules import NameFilter, NotifiedGroup, NotifierSettings
from karrot.burrow.rules import DEFAULT_EXPIRE_GROUP
from karrot.pipeline.evaluate.ring_arrays import RingArrays
from karrot.pipeline.window_arrays.judge_windows import Bools, Ints, LogEndArrays
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet

Texts = npt.NDArray[np.object_]
Owners = Mapping[tuple[str, int], tuple[str, str]]
"""Maps a topic and partition to the host and client id of the member that owns the partition."""

STATE_VERSION: Final = 5
"""The version of `BucketState.to_bytes`."""


class Partitions(NamedTuple):
    """The partitions on which groups have committed, sorted by ``group``.

    ``group`` is the row of the group in the bucket. ``topic_key`` is the hash of the topic's name.
    """

    group: Ints
    topic_key: Ints
    topic: Texts
    partition: Ints
    rings: RingArrays

    def taken(self, rows: Ints | Bools) -> Self:
        group, topic_key, partition = (column[rows] for column in (self.group, self.topic_key, self.partition))
        return type(self)(group, topic_key, self.topic[rows], partition, self.rings.taken(rows))

    def places(self, rows: Ints | slice) -> set[tuple[str, int]]:
        """Return the topics and partitions of some rows."""
        return {*zip(self.topic[rows].tolist(), self.partition[rows].tolist(), strict=True)}

    def joined(self, other: Self) -> Self:
        return type(self)(
            np.append(self.group, other.group),
            np.append(self.topic_key, other.topic_key),
            np.append(self.topic, other.topic),
            np.append(self.partition, other.partition),
            self.rings.joined(other.rings),
        )


class Uncommitted(NamedTuple):
    """A partition that a group reads without a committed offset.

    As in `karrot.watch.rings.Uncommitted`, for log-end samples until ``seen_ms``.
    """

    topic: str
    partition: int
    first_end: int
    seen_ms: int
    polls: int = 0
    owned: int = -1


class GroupMemory(NamedTuple):
    """The state of a group.

    - ``key``: the hash of the group's name.
    - ``last_commit_ms``: the timestamp of the last commit, at most that of its record; 0 without a commit.
    - ``listed``: how many partitions of each topic a verdict lists, with or without a commit.
    - ``notified``: the open incident and the last notification.
    - ``members``: the members as JSON, each ``[host, client id, {topic: [partition, …]}]``.
    - ``members_ms``: the timestamp of the metadata record with these members.
    - ``unread``: since when the members own partitions, but none of a topic, by the topic.
    - ``uncommitted``: the partitions that members read without a committed offset.
    """

    key: int
    name: str
    last_commit_ms: int
    listed: dict[str, int]
    notified: NotifiedGroup
    members: str
    members_ms: int
    unread: dict[str, int]
    uncommitted: list["Uncommitted"]

    @classmethod
    def of(cls, key: int, name: str) -> Self:
        return cls(key, name, 0, {}, NotifiedGroup(), "[]", 0, {}, [])

    def is_older(self, than_ms: int) -> bool:
        """Whether the last commit is older. Without a commit, the group must have no members, too."""
        return than_ms > (self.last_commit_ms or (than_ms if self.members != "[]" else self.members_ms))


def owners_of(members: str) -> Owners:
    """Return the owners from the ``members`` of a `GroupMemory`."""
    return {
        (topic, number): (host, client_id)
        for host, client_id, assigned in json.loads(members)
        for topic, numbers in assigned.items()
        for number in numbers
    }


class BucketState(NamedTuple):
    groups: list[GroupMemory]
    partitions: Partitions

    @classmethod
    def empty(cls, intervals: int) -> Self:
        nothing = np.zeros(0, np.int64)
        return cls([], Partitions(nothing, nothing, np.zeros(0, np.object_), nothing, RingArrays.empty(0, intervals)))

    def to_bytes(self) -> bytes:
        """Serialize the state: a line of JSON with the groups and the names of the topics, then the arrays."""
        group, topic_key, topic, partition, rings = self.partitions
        keys, first, number = np.unique(topic_key, return_index=True, return_inverse=True)
        sink = BytesIO()
        sink.write(msgspec.json.encode((self.groups, topic[first].tolist())) + b"\n")
        for column in (group, keys, number, partition, *rings):
            np.save(sink, column)
        return sink.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        source = BytesIO(content)
        groups, names = msgspec.json.decode(source.readline(), type=tuple[list[GroupMemory], list[str]])
        group, keys, number, partition, *rings = (np.load(source) for _ in range(4 + len(RingArrays._fields)))
        topic = np.array(names, np.object_)[number]  # the partitions of a topic share one string
        return cls(groups, Partitions(group, keys[number], topic, partition, RingArrays(*rings)))


class EvaluateRules(NamedTuple):
    """The settings of the evaluation. ``expire_group`` is in seconds.

    With ``lists_all``, a verdict lists all partitions, otherwise only partitions worse than OK, as in Burrow.
    Only groups that ``groups`` chooses are judged.
    """

    rules: RuleSet = RuleSet("burrow")
    notifier: NotifierSettings = NotifierSettings()
    expire_group: int = DEFAULT_EXPIRE_GROUP
    lists_all: bool = True
    groups: NameFilter = NameFilter()


_ODD_NUMBER = -7046029254386353131  # mixes two hashes: 2**64 divided by the golden ratio, as a signed number


class LogEnds(NamedTuple):
    """The recent log ends of all partitions, without those of deleted topics.

    ``keys`` has the `source_key` of each partition, ascending. In ``ends``, ``source`` is an index of ``keys``.
    ``topics`` has the number of partitions of each topic, and ``topic_keys`` the hash of its name.
    """

    keys: Ints
    ends: LogEndArrays
    topics: Mapping[str, int]
    topic_keys: Mapping[str, int]

    def source_of(self, keys: Ints) -> Ints:
        """Return the index in ``keys`` of each given key; -1 for an unknown partition."""
        return index_of(self.keys, keys)

    def only(self, keys: Ints) -> "LogEnds":
        """Return the log ends of the partitions with the given keys, and all ``topics``."""
        source = np.unique(self.source_of(keys))
        source = source[source >= 0]
        first, stop = (np.searchsorted(self.ends.source, source, side) for side in ("left", "right"))
        count = stop - first
        rows = np.repeat(stop - np.cumsum(count), count) + np.arange(count.sum())
        ends = LogEndArrays(np.repeat(np.arange(len(source)), count), *(column[rows] for column in self.ends[1:]))
        return LogEnds(self.keys[source], ends, self.topics, self.topic_keys)

    def of(self, topic: str, partition: int, until_ms: int) -> LogEndArrays:
        """Return the log ends of a partition up to a time."""
        [source] = self.source_of(source_key(np.array([self.topic_keys.get(topic, 0)]), np.array([partition])))
        first, stop = np.searchsorted(self.ends.source, [source, source + 1])
        stop = first + np.searchsorted(self.ends.observed_ms[first:stop], until_ms, side="right")
        return LogEndArrays(*(column[first:stop] for column in self.ends))


def index_of(ascending: Ints, keys: Ints) -> Ints:
    """Return the index in ``ascending`` of each key; -1 for a key that is not there."""
    if not len(ascending):
        return np.full(len(keys), -1, np.int64)
    found = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    return np.where(ascending[found] == keys, found, -1)


def source_key(topic_key: Ints, partition: Ints) -> Ints:
    """Return the 64-bit hash of a partition. The chance of a collision in a million partitions is 1 in 40 million."""
    return topic_key * _ODD_NUMBER + partition
