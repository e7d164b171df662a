"""Counts the rebalances of a group, and the messages that retention deletes before the group reads them."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from karrot.event import TopicPartition, readable
from karrot.eventlog.watched_groups import GroupHealth
from karrot.watch.cluster_interface import Description

_REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance"})


@dataclass(slots=True)
class Stability:
    """Counts the rebalances of a group that polls see: a rebalance that is running, or a changed assignment.

    Two rebalances between two polls count as one. A short rebalance that ends with the same assignment is not seen.
    """

    rebalances: int = 0
    assignment: int | None = None
    is_rebalancing: bool = False

    def see(self, described: Description) -> None:
        """Compare a new description of the group with the last one."""
        if described.members is None:
            return
        is_rebalancing = described.state in _REBALANCING
        if is_rebalancing:
            self.rebalances += not self.is_rebalancing
        else:
            # A checksum of the assignment, which a restart of Karrot or of a static member does not change.
            assigned = sorted((each.instance_id or each.id, sorted(each.assigned)) for each in described.members)
            assignment = zlib.crc32(repr(assigned).encode())
            self.rebalances += not self.is_rebalancing and self.assignment not in {None, assignment}
            self.assignment = assignment
        self.is_rebalancing = is_rebalancing


class RetentionMargin(NamedTuple):
    """`GroupHealth` defines both: the messages lost and the retention margin."""

    lost: int | None
    margin: int | None


def retention(
    committed: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> RetentionMargin:
    """The lost messages and the retention margin of a group, over the partitions with a known log start and end."""
    known = [(offset, starts[at], ends[at]) for at, offset in committed.items() if at in starts and at in ends]
    kept = [((at - start) / (end - start), at - start) for at, start, end in known if readable(end, at, start)]
    return RetentionMargin(
        lost=-sum(margin for _, margin in kept if margin < 0) if known else None,
        margin=max(0, min(kept)[1]) if kept else None,
    )


def group_health(
    group: str, described: Description, stability: Stability, kept: RetentionMargin, **more: Any
) -> GroupHealth:
    """The health of a group: all that Kafka reports about the group, without a verdict. ``more`` are other fields."""
    members = None if described.members is None else len(described.members)
    return GroupHealth(group, described.state, members, described.coordinator, stability.rebalances, *kept, **more)
