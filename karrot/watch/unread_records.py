"""Finds out whether a group can read a record where its committed offset does not move although offsets follow it.

An offset is not always a record: a transaction ends with a marker, an aborted transaction leaves offsets without
records, and compaction removes records. A group can have read everything, and never commit past these offsets.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from karrot.event import FirstUnread, TopicPartition
from karrot.watch.cluster_interface import Cluster, ClusterError, Failure
from karrot.watch.rings import Ring, Rings

STILL_POLLS, MOST_READS = 3, 500
"""In how many polls a partition must have the same committed offset, and how many partitions one poll reads at most."""


class _Read(NamedTuple):
    """A read in the poll ``at``. ``is_held``: the last stable offset holds back all records, in each read ``since``."""

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
    """Reads partitions whose committed offset does not move, and reads them again when their offsets change."""

    _reads: dict[tuple[TopicPartition, int], _Read] = field(default_factory=dict)
    _poll: int = 0

    def see(self, cluster: Cluster, rings: Rings) -> Mapping[str, Failure]:
        """Read the partitions that are due, and tell the rings what was found. Returns the present failures."""
        self._poll += 1
        stuck = {key: (log_end, max(polls, ring.held or 0)) for key, log_end, polls, ring in _stuck(rings)}
        self._reads = reads = {key: self._reads.get(key, _Read(at=-rings.intervals)) for key in stuck}
        due = [key for key, read in reads.items() if read.is_due(self._poll, stuck[key][0], rings.intervals)]
        places = dict(sorted(due, key=lambda key: -reads[key].at)[-MOST_READS:])  # those that have waited longest
        try:
            found: Mapping[TopicPartition, FirstUnread | Failure] = cluster.first_unread(places) if places else {}
        except ClusterError as error:  # the poll has all that it needs for verdicts
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
    """Each partition whose offset does not move, its log end, and in how many polls. No unread record is deleted."""
    for place, ring in (each for of_group in rings.groups.values() for each in of_group.items()):
        slots, log = ring.window.slots, rings.log(place)
        if (newest := slots[-1]) is not None and log is not None and (log.start or 0) <= newest.offset < log.end:
            polls = ring.silent + sum(1 for each in slots if each and each.offset == newest.offset and each.lag)
            if polls >= STILL_POLLS:
                yield (place, newest.offset), log.end, polls, ring
