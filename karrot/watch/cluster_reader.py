"""Reads a cluster's groups, committed offsets and log ends once, and computes retention margins.

One reading gives no verdicts, because a verdict needs several polls.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from karrot.burrow.notification_rules import NameFilter
from karrot.event import TopicPartition, readable
from karrot.watch.cluster_interface import Cluster, Description, Failure, Listing

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


_GONE = "unknown_topic_or_part"

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
    topic_ids: Mapping[str, str]

    def uncommitted(self, group: str) -> set[TopicPartition]:
        """The partitions that the group reads without a committed offset. Empty if the offsets are unreadable."""
        committed, described = self.committed.get(group), self.described[group]
        read = _read_by(described, self.partitions, self.topics)
        return set() if committed is None else read - committed.keys() - self.gone


def poll_cluster(cluster: Cluster, groups: NameFilter, topics: NameFilter) -> Poll:
    """Read the wanted groups. The log ends are read last, so no lag is too small. Raises `ClusterError`."""
    listing = cluster.groups()
    listing = listing._replace(groups={name: listing.groups[name] for name in listing.groups if groups.has(name)})
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
        cluster.topic_ids({place.topic for place in ends}),  # last: no new offset comes with the id of an old topic
    )


def _read_by(described: Description, partitions: Mapping[str, int], topics: NameFilter) -> set[TopicPartition]:
    """The partitions that members own, and all other partitions of the topics that the members read."""
    counts = ((topic, partitions.get(topic, 0)) for topic in described.topics)
    read = described.assigned | {TopicPartition(topic, number) for topic, count in counts for number in range(count)}
    return {place for place in read if topics.has(place.topic)}


def _parted(answers: Mapping[K, V | Failure]) -> tuple[dict[K, V], dict[K, Failure]]:
    answered = {key: answer for key, answer in answers.items() if not isinstance(answer, Failure)}
    return answered, {key: answer for key, answer in answers.items() if isinstance(answer, Failure)}
