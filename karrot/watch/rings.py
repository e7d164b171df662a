"""Keeps a window of samples (Burrow's ring of offsets) for each partition of a group, and the partition's log ends.

Burrow stores commits with their times. The Admin API has no commit times, so a sample gets the time of its poll. A poll
takes a sample if the committed offset changed. Without a change, a poll takes a sample if a member owns the partition.

A changed offset was committed after the previous poll. The lag of its sample is the log end of the previous poll minus
the offset, as if Burrow had read the log end before the commit. With the log end of the current poll, the lag of a
group that keeps up would count the messages since the group's last commit. Such a lag would never be zero, and could
grow for ten polls in a row.

Burrow does not know log starts, and counts deleted messages as lag. In this module, every lag is
`karrot.event.readable`: the deleted messages are subtracted from each log end, by the log start of the same poll.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from karrot.burrow.rules import DEFAULT_INTERVALS, TrackedPartition, Window
from karrot.event import FirstUnread, TopicPartition, readable
from karrot.watch.cluster_interface import NOBODY, Cluster, ClusterError, Description, Failure

BEYOND_END_POLLS = 2
"""If a broker has just become leader, an offset can be past the log end in one poll, but not in two polls in a row."""

_GAPS = 5
_KNOWN_GAPS = 3
_PURGES = 2
"""The purges in a row that count, because retention can move a log start to a group's offset once by chance."""


class PolledLog(NamedTuple):
    """The log start and log end of a partition at one poll. ``start`` is ``None`` if unknown."""

    start: int | None
    end: int
    at_ms: int


class CommitHistory(NamedTuple):
    """A summary of the commits on a partition. ``moved_at_ms`` is the time of the last poll that saw the offset move.

    ``waits`` counts the polls with unread messages since the last move. ``gaps`` has the ``waits`` before each of the
    last moves, oldest first. ``was_bad`` says that the last verdict was worse than OK. ``purges`` counts the
    consecutive moves of the log start to the group's own offsets: Kafka Streams deletes messages after reading them.
    """

    moved_at_ms: int | None = None
    waits: int = 0
    gaps: tuple[int, ...] = ()
    was_bad: bool = False
    purges: int = 0

    def usual_gap(self, slots: int) -> int:
        """The usual number of polls with unread messages between two moves of the offset, known from three gaps on."""
        gaps = sorted(self.gaps)
        return gaps[len(gaps) // 2] if len(gaps) >= _KNOWN_GAPS else min(6 * slots, max([5 * slots // 6, *gaps]))

    def is_silent(self, slots: int) -> bool:
        """Whether messages wait for longer than a ring and longer than twice the usual gap."""
        return self.waits > max(slots, 2 * self.usual_gap(slots))


@dataclass(slots=True)
class Ring:
    """The samples of one partition of one group.

    ``silent`` counts the polls since the last sample. ``is_judged`` becomes true when a verdict is possible, and stays
    true. A verdict needs a half-full ring, or as many polls without a sample as the ring has slots. ``beyond_end``
    counts the consecutive polls with the committed offset past the log end. `UnreadRecords` sets ``first``, the first
    unread record, and ``held``, the number of polls in which an open transaction held back all unread records.
    ``is_owned`` says whether a member owned the partition at the last poll. ``unowned`` counts the polls since the last
    move of the offset in which the group read only other topics. After a window of such polls, ``is_left`` is true.
    """

    window: Window
    silent: int = 0
    is_judged: bool = False
    first: FirstUnread | None = None
    held: int | None = None
    past: CommitHistory = field(default_factory=CommitHistory)
    unowned: int = 0
    beyond_end: int = 0
    is_owned: bool = False
    log_start: int | None = None

    @property
    def is_left(self) -> bool:
        return self.unowned >= len(self.window.slots)

    def see(self, offset: int, log: PolledLog, order: int, now_ms: int, allowed_lag: int) -> None:
        """Take a sample of the committed offset if the offset changed or a member owns the partition."""
        slots = self.window.slots
        newest = slots[-1]
        if newest is not None and newest.timestamp_ms > now_ms:  # after a clock set back, no sample would get a slot
            self.window, newest, self.past = Window(len(slots)), None, self.past._replace(moved_at_ms=None)
            self.is_judged, self.silent = False, 0
        is_move = newest is not None and newest.offset != offset
        if newest is None or is_move:
            self.first = self.held = None
        unread_end = self.unread_end(offset, log)
        is_behind = unread_end > offset + allowed_lag
        waits = self.past.waits + is_behind
        self.past = self.past._replace(waits=waits * is_behind)
        if is_move:  # a group without members may commit rarely, so its first gap counts as two rings or more
            gap = waits if self.past.gaps or self.is_owned else max(2 * len(slots), waits)
            self.past = self.past._replace(moved_at_ms=now_ms, waits=0, gaps=(*self.past.gaps, gap)[-_GAPS:])
        if log.start is not None and self.log_start is not None and self.log_start < log.start < log.end:
            is_own = slots[-2] is not None and slots[-2].offset <= log.start <= offset
            self.past = self.past._replace(purges=self.past.purges + 1 if is_own else 0)
        self.log_start = log.start
        if newest is None or is_move or self.is_owned:
            self.window.add(
                offset,
                order=order,
                timestamp_ms=now_ms,
                broker_offset=unread_end,
                observed_at_ms=log.at_ms,
                log_end=None if unread_end == log.end else log.end,
            )
            self.silent = 0
        else:
            self.silent += 1
        if not self.is_judged:
            is_half_full = 2 * sum(slot is not None for slot in self.window.slots) >= len(slots)
            self.is_judged = self.silent >= len(slots) or is_half_full

    def outgrows_gap(self) -> bool:
        """Whether the lag exceeds the messages that arrive between two moves of the offset and in one more poll.

        A smaller lag is normal: it rises and falls while a group keeps up, and can rise in ten samples by chance.
        """
        slots = self.window.slots
        ends = [slot.offset + (slot.lag or 0) for slot in slots if slot is not None]
        arrived_per_poll = (ends[-1] - ends[0]) / max(1, len(ends) - 1)
        return (slots[-1].lag or 0) > arrived_per_poll * (self.past.usual_gap(len(slots)) + 1) if slots[-1] else False

    def unread_end(self, offset: int, log: PolledLog) -> int:
        """The log end minus the known number of offsets without a readable record."""
        return offset + readable(log.end, offset, max(log.start or 0, self.first.offset if self.first else 0))


class Uncommitted(NamedTuple):
    """A partition that the group reads, without a committed offset.

    ``polls`` counts the polls since the first poll that saw the partition. ``first_end`` is the log end at the first
    poll with an owner. ``got_records`` says that the log has grown beyond ``first_end`` and has messages. ``owned``
    counts the polls with an owner since the log grew, and is -1 before the first owner.
    """

    first_end: int
    polls: int
    owned: int
    got_records: bool = False


@dataclass(slots=True)
class Rings:
    """The rings of all groups of one cluster. ``logs`` has each read partition's last log starts and ends, in order."""

    intervals: int = DEFAULT_INTERVALS
    logs: dict[TopicPartition, deque[PolledLog]] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, Ring]] = field(default_factory=dict)
    uncommitted: dict[str, dict[TopicPartition, Uncommitted]] = field(default_factory=dict)
    grown: set[TopicPartition] = field(default_factory=set)
    order: int = 0
    allowed_lag: int = 0
    _newest: dict[TopicPartition, PolledLog] = field(default_factory=dict)
    _before: dict[TopicPartition, PolledLog] = field(default_factory=dict)

    def see_logs(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now_ms: int) -> None:
        self._before = self._newest
        seen = {place: PolledLog(starts.get(place), end, now_ms) for place, end in ends.items()}
        kept = self._before or {place: history[-1] for place, history in self.logs.items()}  # from before a restart
        self._newest = kept | seen
        self.grown = {place for place, log in seen.items() if (old := self.logs.get(place)) and old[-1].end != log.end}
        for place, log in seen.items():
            history = self.logs.get(place)
            if history is None:
                history = self.logs[place] = deque(maxlen=self.intervals)
            history.append(log)

    def see_commits(
        self, group: str, committed: Mapping[TopicPartition, int], *, owned: Collection[TopicPartition], now_ms: int
    ) -> None:
        """Add the samples of a poll, and forget the partitions that the poll does not have.

        As in Burrow, a sample needs an earlier log end.
        """
        self.order += 1
        before = self.groups.get(group, {})
        usual = CommitHistory(gaps=max((ring.past.gaps for ring in before.values()), key=sum, default=()))
        known = committed.keys() & self._newest.keys()
        rings = {place: before.get(place) or Ring(Window(self.intervals), past=usual) for place in known}
        for place, ring in rings.items():
            log = self._newest[place]
            if log.at_ms == now_ms:  # a log end of an earlier poll can be smaller than the offset
                ring.beyond_end = ring.beyond_end + 1 if committed[place] > log.end else 0
        for place in rings.keys() & self._before.keys():
            rings[place].is_owned = place in owned
            rings[place].see(committed[place], self._before[place], self.order, now_ms, self.allowed_lag)
        self.groups[group] = rings

    def see_uncommitted(self, group: str, places: Collection[TopicPartition], described: Description) -> None:
        """Store the partitions that a group reads without a committed offset, and forget all its other partitions.

        Polls without an owner do not count, because consumers find added partitions after minutes. While the group is
        not Stable, or its members own no partition, its partitions are kept.
        """
        before, seen, assigned = self.uncommitted.pop(group, {}), {}, described.assigned
        waiting = () if described.topics else before.keys() - self.groups.get(group, {}).keys()
        for place in {*places, *waiting}:
            log = self._newest.get(place)
            if log is not None:
                one = before.get(place) or Uncommitted(log.end, -1, -1)
                first_end = log.end if one.owned < 0 else one.first_end
                got_records = log.end > max(first_end, log.start or 0)
                owned = one.owned
                if place in assigned:
                    owned = max(owned, 0) + 1 if got_records else 0
                seen[place] = Uncommitted(first_end, one.polls + 1, owned, got_records)
        if seen:
            self.uncommitted[group] = seen

    def forget(self, group: str) -> None:
        self.groups.pop(group, None)
        self.uncommitted.pop(group, None)

    def forget_unread(self) -> None:
        """Forget the logs of partitions that no group reads."""
        read = {place for rings in self.groups.values() for place in rings}
        read |= {place for places in self.uncommitted.values() for place in places}
        self.logs = {place: history for place, history in self.logs.items() if place in read}
        self._newest = {place: log for place, log in self._newest.items() if place in read}

    def log(self, place: TopicPartition) -> PolledLog | None:
        return self._newest.get(place)

    def retained(self, group: str, committed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The oldest unread offsets, without topics that the group has left or whose messages it deletes."""
        rings = self.groups.get(group, {})
        unread = {at: ring.first.offset for at, ring in rings.items() if ring.first}
        ignored = {at for at, ring in rings.items() if ring.is_left or ring.past.purges >= _PURGES}
        return {at: max(offset, unread.get(at, 0)) for at, offset in committed.items() if at not in ignored}

    def tracked(
        self, group: str, owners: Mapping[TopicPartition, tuple[str, str]], without: Collection[TopicPartition]
    ) -> Iterator[TrackedPartition]:
        """Yield the partitions to evaluate. Their log end was known before this poll, and their topic still exists."""
        for place, ring in sorted(self.groups.get(group, {}).items()):
            if place not in without and place in self._before:
                slots = ring.window.slots
                committed = slots[-1].offset if slots[-1] else 0
                ends = [ring.unread_end(committed, log) for log in self.logs[place]]
                yield TrackedPartition(*place, slots, ends, *owners.get(place, NOBODY))

    def unjudged(self, group: str) -> set[TopicPartition]:
        """The partitions that do not have enough samples for a verdict yet, or whose topic the group may have left."""
        rings = self.groups.get(group, {}).items()
        few = {place for place, ring in rings if not ring.is_judged and ring.beyond_end < BEYOND_END_POLLS}
        # One poll can find a topic without an owner between two steps of a rebalance.
        return few | {place for place, ring in rings if ring.unowned > 1}


STILL_POLLS, MOST_READS = 3, 500
"""The polls with an unchanged committed offset before a partition is read, and the most reads of a poll."""


class _Read(NamedTuple):
    """A read in the poll ``at``. If ``is_held``, an open transaction has held back all records since ``since``."""

    found: FirstUnread | Failure | None = None
    log_end: int = 0
    at: int = 0
    since: int = 0
    is_held: bool = False

    def is_due(self, poll: int, log_end: int, window: int) -> bool:
        if self.is_held or not isinstance(self.found, FirstUnread):
            is_soon = isinstance(self.found, Failure) and not self.found.reason.endswith("authorization_failed")
            return poll - self.at >= (window // 3 if is_soon else window) or (self.is_held and log_end != self.log_end)
        return self.found.written_ms is None and log_end != self.log_end


@dataclass(slots=True)
class UnreadRecords:
    """Reads the first unread record of each partition whose committed offset does not move."""

    _reads: dict[tuple[TopicPartition, int], _Read] = field(default_factory=dict)
    _poll: int = 0

    def see(self, cluster: Cluster, rings: Rings) -> Mapping[str, Failure]:
        """Read the partitions that are due, and store the results in the rings. Return the present failures."""
        self._poll += 1
        stuck = {key: (log_end, max(polls, ring.held or 0)) for key, log_end, polls, ring in _stuck(rings)}
        self._reads = reads = {key: self._reads.get(key, _Read(at=-rings.intervals)) for key in stuck}
        due = [key for key, read in reads.items() if read.is_due(self._poll, stuck[key][0], rings.intervals)]
        places = dict(sorted(due, key=lambda key: -reads[key].at)[-MOST_READS:])  # longest wait first
        try:
            found: Mapping[TopicPartition, FirstUnread | Failure] = cluster.first_unread(places) if places else {}
        except ClusterError as error:  # verdicts do not need these reads
            found = dict.fromkeys(places, Failure(error.reason, str(error)))
        for key in places.items():
            before, now, (log_end, polls) = reads[key], found[key[0]], stuck[key]
            new_since = self._poll if isinstance(before.found, FirstUnread) else self._poll - polls
            since = before.since if before.is_held and before.found == now else new_since
            is_held = isinstance(now, FirstUnread) and now.written_ms is None and now.offset < log_end
            reads[key] = _Read(now, log_end, self._poll, since, is_held)
        for key, _, _, ring in _stuck(rings):
            read = reads[key]
            ring.first = read.found if isinstance(read.found, FirstUnread) else ring.first
            ring.held = read.at - read.since if read.is_held else None
        failures = [read.found for read in reads.values() if isinstance(read.found, Failure)]
        return {f"unread records ({failure.reason})": failure for failure in failures}


def _stuck(rings: Rings) -> Iterator[tuple[tuple[TopicPartition, int], int, int, Ring]]:
    """Yield each partition with unread records and a still offset, its log end, the number of still polls, its ring."""
    for place, ring in (each for of_group in rings.groups.values() for each in of_group.items()):
        slots, log = ring.window.slots, rings.log(place)
        if (newest := slots[-1]) is not None and log is not None and (log.start or 0) <= newest.offset < log.end:
            polls = ring.silent + sum(1 for each in slots if each and each.offset == newest.offset and each.lag)
            if polls >= STILL_POLLS:
                yield (place, newest.offset), log.end, polls, ring
