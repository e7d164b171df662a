"""Reads the lags, the members and the retention margins of a cluster's groups as they are now.

It gives no verdict: a verdict needs a history.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from karrot.event import LagEvent, OffsetSample, PartitionLag, Source, TopicPartition
from karrot.eventlog.group_health import GroupHealth
from karrot.watch.group_stability import Stability, group_health, retention
from karrot.watch.kafka_protocol import Cluster, Description, Failure
from karrot.watch.poll import Poll, log_starts, poll_cluster

_NOT_LISTED = Failure("group_id_not_found", "Kafka lists no such group")


class ClusterSnapshot(NamedTuple):
    """What one reading of a cluster found.

    ``lags`` have no status; ``failures`` say by name which groups could not be read. Rebalances are seen between two
    readings: none could be before the second.
    """

    lags: tuple[LagEvent, ...]
    healths: Mapping[str, GroupHealth]
    failures: Mapping[str, Failure]
    counts_rebalances: bool


@dataclass(slots=True)
class ClusterReader:
    """Reads a cluster whenever it is asked to, and counts the rebalances that it sees between two readings."""

    name: str
    cluster: Cluster
    _stability: dict[str, Stability] = field(default_factory=dict)
    _has_read: bool = False

    def read(self, now_ms: int, groups: Collection[str] = ()) -> ClusterSnapshot:
        """All groups, or those that are named. Raises `ClusterError`."""
        poll = poll_cluster(self.cluster, only=groups)
        starts = log_starts(self.cluster, poll)
        counts_rebalances, self._has_read = self._has_read, True
        return ClusterSnapshot(
            tuple(_lag(self.name, group, poll, now_ms) for group in sorted(poll.committed)),
            {group: self._health(group, poll, starts) for group in poll.described},
            dict.fromkeys(set(groups) - poll.described.keys(), _NOT_LISTED) | _unread(poll),
            counts_rebalances,
        )

    def _health(self, group: str, poll: Poll, starts: Mapping[TopicPartition, int]) -> GroupHealth:
        described, committed = poll.described[group], poll.committed.get(group, {})
        stability = self._stability.setdefault(group, Stability())
        stability.see(described)
        return group_health(group, described, stability, retention(committed, starts, poll.ends))


def _unread(poll: Poll) -> dict[str, Failure]:
    return {group: poll.failures[f"group {group}"] for group in poll.described.keys() - poll.committed.keys()}


def _lag(cluster: str, group: str, poll: Poll, now_ms: int) -> LagEvent:
    """All that the group has committed, but for topics that are gone. A sum is known if each of its parts is."""
    described, committed = poll.described[group], poll.committed[group]
    owners = _owners(described)
    partitions = tuple(
        _partition(at, committed[at], poll.ends.get(at), owners.get(at, ("", "")), now_ms)
        for at in sorted(committed.keys() - poll.gone)
    )
    lags = [one.current_lag for one in partitions if one.current_lag is not None]
    return LagEvent(
        cluster,
        group,
        "",
        sum(lags) if len(lags) == len(partitions) else None,
        now_ms,
        Source.KAFKA,
        partition_count=len(partitions),
        max_lag=max(partitions, key=lambda one: one.current_lag or 0, default=None),
        partitions=partitions,
    )


def _partition(at: TopicPartition, offset: int, end: int | None, owner: tuple[str, str], now_ms: int) -> PartitionLag:
    lag = None if end is None else max(0, end - offset)
    host, client_id = owner
    return PartitionLag(
        at.topic, at.partition, "", lag, end=OffsetSample(offset, now_ms, lag), owner=host, client_id=client_id
    )


def _owners(described: Description) -> dict[TopicPartition, tuple[str, str]]:
    return {at: (member.host, member.client_id) for member in described.members or () for at in member.assigned}
