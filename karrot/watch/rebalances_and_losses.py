"""Counts the rebalances of a group, and the messages that retention deletes before the group reads them. Pure."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from karrot.event import TopicPartition
from karrot.eventlog.watched_groups import GroupHealth
from karrot.watch.cluster_interface import Description

_REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance"})


@dataclass(slots=True)
class Stability:
    """The rebalances of a group that polls can see: one under way, or an assignment that differs from the last.

    Two between two polls look like one, and one that ends where it began and was short is not seen.
    """

    rebalances: int = 0
    assignment: int | None = None
    is_rebalancing: bool = False

    def see(self, described: Description) -> None:
        """Take a description."""
        if described.members is None:
            return
        is_rebalancing = described.state in _REBALANCING
        if is_rebalancing:
            self.rebalances += not self.is_rebalancing
        else:
            # A number that stays the same, also across restarts, while the assignment does.
            assigned = sorted((member.id, sorted(member.assigned)) for member in described.members)
            assignment = zlib.crc32(repr(assigned).encode())
            self.rebalances += not self.is_rebalancing and self.assignment not in {None, assignment}
            self.assignment = assignment
        self.is_rebalancing = is_rebalancing


class RetentionMargin(NamedTuple):
    """``lost``: messages deleted unread. ``margin``: from the log start to the oldest unread one; see `GroupHealth`."""

    lost: int | None
    margin: int | None


def retention(
    committed: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> RetentionMargin:
    """What deletion has taken and comes near to, over the partitions whose log start and end are known."""
    known = [(offset, starts[at], ends[at]) for at, offset in committed.items() if at in starts and at in ends]
    unread = [(offset, start) for offset, start, end in known if offset < end]
    return RetentionMargin(
        lost=sum(max(0, start - offset) for offset, start in unread) if known else None,
        margin=min((max(0, offset - start) for offset, start in unread), default=None),
    )


def group_health(group: str, described: Description, stability: Stability, kept: RetentionMargin) -> GroupHealth:
    """The health of a group: what is known of it besides its verdict."""
    return GroupHealth(
        consumer=group,
        state=described.state,
        members=None if described.members is None else len(described.members),
        coordinator=described.coordinator,
        rebalances=stability.rebalances,
        messages_lost=kept.lost,
        retention_margin=kept.margin,
    )
