"""Reads a cluster's groups, committed offsets and log ends once, and computes lags and retention margins.

One reading gives no verdicts, because a verdict needs several polls.
"""

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from karrot.burrow.notification_rules import NameFilter
from karrot.event import LagEvent, OffsetSample, PartitionLag, Source, TopicPartition, readable
from karrot.eventlog.watch_data_of_groups import GroupHealth
from karrot.watch.cluster_interface import NOBODY, Cluster, Description, Failure, Listing

_REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance"})


@dataclass(slots=True)
class Stability:
    """Counts a group's rebalances. A poll sees a running rebalance or a changed assignment.

    Two rebalances between two polls count as one. A rebalance between two polls with an unchanged assignment is missed.
    """

    rebalances: int = 0
    assignment: int | None = None
    is_rebalancing: bool = False

    def see(self, described: Description) -> None:
        if described.members is None:
            return
        is_rebalancing = described.state in _REBALANCING
        if is_rebalancing:
            self.rebalances += not self.is_rebalancing
        else:
            # A restart of Karrot or of a static member does not change this checksum.
            assigned = sorted((each.instance_id or each.id, sorted(each.assigned)) for each in described.members)
            assignment = zlib.crc32(repr(assigned).encode())
            self.rebalances += not self.is_rebalancing and self.assignment not in {None, assignment}
            self.assignment = assignment
        self.is_rebalancing = is_rebalancing


def retention(
    committed: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> tuple[int | None, int | None]:
    """The lost messages and the retention margin (`GroupHealth`) of the partitions with a known log start and end."""
    known = [(offset, starts[at], ends[at]) for at, offset in committed.items() if at in starts and at in ends]
    kept = [((at - start) / (end - start), at - start) for at, start, end in known if readable(end, at, start)]
    lost = -sum(margin for _, margin in kept if margin < 0) if known else None
    return lost, max(0, min(kept)[1]) if kept else None


def group_health(
    group: str, described: Description, stability: Stability, kept: tuple[int | None, int | None], **more: Any
) -> GroupHealth:
    """Make the health of a group from Kafka's data, without a verdict. ``more`` has further fields."""
    members = None if described.members is None else len(described.members)
    return GroupHealth(group, described.state, members, described.coordinator, stability.rebalances, *kept, **more)


NOT_LISTED = Failure("group_id_not_found", "Kafka lists no such consumer group")
_GONE = "unknown_topic_or_part"
_OTHER_KIND = Failure("other_kind", "it is no consumer group but a share group or another kind, not watched yet")

K = TypeVar("K")
V = TypeVar("V")


class Poll(NamedTuple):
    """The answers of one poll. ``gone`` are deleted partitions, ``failures`` are unreadable groups and partitions.

    ``starts`` has only the readable log starts. ``partitions`` has each read topic's number of partitions.
    """

    listing: Listing
    described: Mapping[str, Description]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    gone: frozenset[TopicPartition]
    failures: Mapping[str, Failure]
    partitions: Mapping[str, int]
    topics: NameFilter

    def uncommitted(self, group: str) -> set[TopicPartition]:
        """The partitions that the group reads without a committed offset. Empty if the offsets are unreadable."""
        committed, described = self.committed.get(group), self.described[group]
        read = _read_by(described, self.partitions, self.topics)
        return set() if committed is None else read - committed.keys() - self.gone


def poll_cluster(cluster: Cluster, groups: NameFilter, topics: NameFilter, only: Collection[str] = ()) -> Poll:
    """Read the wanted groups. The log ends are read last, so no lag is too small. Raises `ClusterError`."""
    listing = cluster.groups()
    chosen = [name for name in listing.groups if (not only or name in only) and groups.has(name)]
    listing = listing._replace(groups={name: listing.groups[name] for name in chosen})
    described, no_description = _parted(cluster.describe(listing.groups))
    committed, no_offsets = _parted(cluster.committed(listing.groups))
    committed = {group: {at: each[at] for at in each if topics.has(at.topic)} for group, each in committed.items()}
    places = {place for offsets in committed.values() for place in offsets}
    partitions = cluster.partitions({topic for group in described.values() for topic in group.topics})
    places |= {
        at for group in committed.keys() & described.keys() for at in _read_by(described[group], partitions, topics)
    }
    starts, _ = _parted(cluster.log_starts(places))
    ends, no_ends = _parted(cluster.log_ends(places))
    gone = frozenset(place for place, failure in no_ends.items() if failure.reason == _GONE)
    return Poll(
        listing,
        {group: described.get(group) or Description(state, None) for group, state in listing.groups.items()},
        committed,
        starts,
        ends,
        gone,
        {
            **{f"group {group}": failure for group, failure in (no_description | no_offsets).items()},
            **{f"partition {at.topic}-{at.partition}": no_ends[at] for at in no_ends.keys() - gone},
        },
        partitions,
        topics,
    )


def _read_by(described: Description, partitions: Mapping[str, int], topics: NameFilter) -> set[TopicPartition]:
    """The partitions that members own, and all other partitions of the topics that the members read."""
    counts = ((topic, partitions.get(topic, 0)) for topic in described.topics)
    read = described.assigned | {TopicPartition(topic, number) for topic, count in counts for number in range(count)}
    return {place for place in read if topics.has(place.topic)}


def _parted(answers: Mapping[K, V | Failure]) -> tuple[dict[K, V], dict[K, Failure]]:
    answered = {key: answer for key, answer in answers.items() if not isinstance(answer, Failure)}
    return answered, {key: answer for key, answer in answers.items() if isinstance(answer, Failure)}


class ClusterSnapshot(NamedTuple):
    """The result of one reading of a cluster.

    ``lags`` have no status. ``failures`` are the groups that could not be read. A rebalance is a difference between two
    readings, so ``counts_rebalances`` is false for the first reading. ``others`` are groups of other kinds.
    """

    lags: tuple[LagEvent, ...]
    healths: Mapping[str, GroupHealth]
    failures: Mapping[str, Failure]
    counts_rebalances: bool
    others: frozenset[str]


@dataclass(slots=True)
class ClusterReader:
    """Reads a cluster on each call of `read`, and counts the rebalances between two readings."""

    name: str
    cluster: Cluster
    _stability: dict[str, Stability] = field(default_factory=dict)
    _has_read: bool = False

    def read(self, now_ms: int, groups: Collection[str] = ()) -> ClusterSnapshot:
        """Read all groups, or only those in ``groups``. Raises `ClusterError`."""
        poll = poll_cluster(self.cluster, NameFilter(), NameFilter(), groups)
        counts_rebalances, self._has_read = self._has_read, True
        others, missing = poll.listing.others, set(groups) - poll.described.keys()
        unread = {group: poll.failures[f"group {group}"] for group in poll.described.keys() - poll.committed.keys()}
        return ClusterSnapshot(
            tuple(_lag(self.name, group, poll, now_ms) for group in sorted(poll.committed)),
            {group: self._health(group, poll) for group in poll.described},
            {group: _OTHER_KIND if group in others else NOT_LISTED for group in missing} | unread,
            counts_rebalances,
            others,
        )

    def _health(self, group: str, poll: Poll) -> GroupHealth:
        described, committed = poll.described[group], poll.committed.get(group, {})
        stability = self._stability.setdefault(group, Stability())
        stability.see(described)
        beyond_end = sum(offset > poll.ends.get(at, offset) for at, offset in committed.items())
        kept = retention(committed, poll.starts, poll.ends)
        uncommitted = len(poll.uncommitted(group)) if group in poll.committed else None
        return group_health(group, described, stability, kept, beyond_end=beyond_end, uncommitted=uncommitted)


def _lag(cluster: str, group: str, poll: Poll, now_ms: int) -> LagEvent:
    """Make a group's lags without deleted topics. The total needs at least one partition, and all lags known."""
    described, committed = poll.described[group], poll.committed[group]
    owners = described.owners
    partitions = tuple(
        _partition(at, committed.get(at), poll, owners.get(at, NOBODY), now_ms)
        for at in sorted((committed.keys() - poll.gone) | poll.uncommitted(group))
    )
    lags = [one.current_lag for one in partitions if one.current_lag is not None]
    return LagEvent(
        cluster,
        group,
        "",
        sum(lags) if lags and len(lags) == len(partitions) else None,
        now_ms,
        Source.KAFKA,
        partition_count=len(partitions),
        max_lag=max(partitions, key=lambda one: one.current_lag or 0, default=None),
        partitions=partitions,
    )


def _partition(at: TopicPartition, offset: int | None, poll: Poll, owner: tuple[str, str], now_ms: int) -> PartitionLag:
    end, start = poll.ends.get(at), poll.starts.get(at)
    lag = None if end is None or offset is None or offset > end else readable(end, offset, start)
    host, client_id = owner
    return PartitionLag(
        topic=at.topic,
        partition=at.partition,
        owner=host,
        client_id=client_id,
        status_text="",
        end=None if offset is None else OffsetSample(offset, now_ms, lag=lag),
        current_lag=lag,
        log_end=end,
        log_start=start,
    )
