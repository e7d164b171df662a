"""Keeps Burrow's window ("ring") of samples for each partition of a group, and the newest log ends of the partition.

Burrow stores commits with their times. The Admin API has no commit times, so a sample is taken at a poll and gets the
time of the poll. A sample is taken if the offset moved, or if the group has members (which then make no progress).

A new committed offset was committed after the previous poll. Burrow would have measured its lag against the log end
that it knew then, the one of the previous poll, so this module does the same. With the log end of the current poll, the
lag of a group that keeps up would be the messages written since its last commit: never zero, and sometimes growing for
ten polls in a row.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from karrot.burrow.rules import DEFAULT_INTERVALS, TrackedPartition, Window
from karrot.event import LogEnd, OffsetSample, TopicPartition
from karrot.watch.cluster_interface import GroupMember


@dataclass(slots=True)
class Ring:
    """The samples of one partition of one group.

    ``silent`` counts the polls since the last sample. ``is_judged`` says that a verdict is possible: half of the ring
    was filled, or as many polls as the ring is long gave no sample. Once true, it stays true.
    """

    window: Window
    silent: int = 0
    is_judged: bool = False

    def see(self, offset: int, end: LogEnd, order: int, now_ms: int, *, has_members: bool) -> None:
        """Take a sample of the committed offset, unless nothing changed in a group without members."""
        slots = self.window.slots
        newest = slots[-1]
        if newest is None or newest.offset != offset or has_members:
            self.window.add(
                offset, order=order, timestamp_ms=now_ms, broker_offset=end.offset, observed_at_ms=end.at_ms
            )
            self.silent = 0
        else:
            self.silent += 1
        if not self.is_judged:
            is_half_full = 2 * sum(slot is not None for slot in self.window.slots) >= len(slots)
            self.is_judged = self.silent >= len(slots) or is_half_full


@dataclass(slots=True)
class Rings:
    """The rings of all groups of one cluster, and the log ends of the partitions that they read."""

    intervals: int = DEFAULT_INTERVALS
    ends: dict[TopicPartition, deque[int]] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, Ring]] = field(default_factory=dict)
    order: int = 0
    _newest: dict[TopicPartition, LogEnd] = field(default_factory=dict)
    _before: dict[TopicPartition, LogEnd] = field(default_factory=dict)

    def see_ends(self, ends: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Add the log end offsets of a poll."""
        self._before = self._newest
        self._newest = self._before | {place: LogEnd(now_ms, end) for place, end in ends.items()}
        for place, end in ends.items():
            history = self.ends.get(place)
            if history is None:
                history = self.ends[place] = deque(maxlen=self.intervals)
            history.append(end)

    def see_commits(
        self, group: str, committed: Mapping[TopicPartition, int], *, has_members: bool, now_ms: int
    ) -> None:
        """Take the samples of a poll. A partition without a committed offset is forgotten: its offset or topic is gone.

        No sample is taken if no log end was known before the commit. Burrow drops such a commit too.
        """
        self.order += 1
        before = self.groups.get(group, {})
        rings = {
            place: before.get(place) or Ring(Window(self.intervals)) for place in committed if place in self._newest
        }
        for place in rings.keys() & self._before.keys():
            rings[place].see(committed[place], self._before[place], self.order, now_ms, has_members=has_members)
        self.groups[group] = rings

    def restore(self, group: str, place: TopicPartition, ring: Ring, samples: Collection[OffsetSample]) -> None:
        """Restore a saved ring from its samples with their lags, oldest first."""
        for sample in samples:
            self.order += 1
            ring.window.add(
                sample.offset,
                order=self.order,
                timestamp_ms=sample.timestamp_ms,
                broker_offset=sample.offset + (sample.lag or 0),
                observed_at_ms=sample.observed_at_ms,
            )
        self.groups.setdefault(group, {})[place] = ring

    def forget(self, group: str) -> None:
        """Forget a group."""
        self.groups.pop(group, None)

    def forget_unread(self) -> None:
        """Forget the log ends of partitions that no group reads."""
        read = {place for rings in self.groups.values() for place in rings}
        self.ends = {place: history for place, history in self.ends.items() if place in read}
        self._newest = {place: end for place, end in self._newest.items() if place in read}

    def tracked(
        self, group: str, members: Collection[GroupMember], without: Collection[TopicPartition]
    ) -> Iterator[TrackedPartition]:
        """The partitions for evaluating a group: those with an earlier log end, without deleted topics."""
        owners = {place: member for member in members for place in member.assigned}
        for place, ring in sorted(self.groups.get(group, {}).items()):
            if place not in without and place in self._before:
                owner = owners.get(place)
                yield TrackedPartition(
                    *place,
                    ring.window.slots,
                    self.ends[place],
                    owner.host if owner else "",
                    owner.client_id if owner else "",
                )

    def unjudged(self, group: str) -> set[TopicPartition]:
        """The partitions that do not have enough samples for a verdict yet."""
        return {place for place, ring in self.groups.get(group, {}).items() if not ring.is_judged}
