"""Ranks all live groups, worst first. It reads only the changed groups from the log."""

import sys
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from karrot.clock import Clock
from karrot.event import GroupKey
from karrot.eventlog.base import Changed, Groups, GroupState, groups
from karrot.web.pages.gil_yielding import gently
from karrot.web.pages.value_cache import ThrottledCache

WELL = "OK"

_SEVERITY = {"ERR": 0, "WARN": 1, WELL: 3}
_ODD = 2  # a status that Burrow does not document deserves attention
_MANY = 10
"""If more than one in ten groups changed, sorting all groups is cheaper than inserting each one."""

_AT_ONCE = 5
"""The changed groups per read. Reading five takes about one burst of `gently`."""


@dataclass(frozen=True, slots=True)
class RankedGroups:
    """Every group at one moment, worst first, with counts. Many readers share one object.

    ``counts`` has the number of groups by status, without Burrow's own groups. ``of_burrow`` has these numbers for
    Burrow's own groups. ``burrow_behind`` lists the clusters where Burrow's own group is not OK.
    """

    worst_first: list[GroupState]
    counts: Counter[str]
    of_burrow: Counter[str]
    clusters: list[str]
    burrow_behind: list[str]


class _Rank(NamedTuple):
    """A group's place: by status, then by lag in seconds, then by lag. An unknown value comes after all known values.

    Every key is different, so a comparison never reaches the state after the key.
    """

    severity: int
    delay: float
    lag: int
    key: GroupKey
    state: GroupState

    @classmethod
    def of(cls, state: GroupState) -> "_Rank":
        summary = state.summary
        lag, seconds = summary.total_lag, summary.signals.lag_seconds
        severity = _SEVERITY.get(summary.status_text, _ODD)
        return cls(severity, 0.0 if seconds is None else -1 - seconds, 0 if lag is None else -1 - lag, state.key, state)


class Ranking:
    """The sorted groups and their counts, updated as groups change. Not safe for several threads."""

    def __init__(self) -> None:
        self._ranks: dict[GroupKey, _Rank] = {}
        self._ordered: list[_Rank] = []
        self._counts: Counter[str] = Counter()
        self._clusters: Counter[str] = Counter()
        self._of_burrow: dict[GroupKey, _Rank] = {}

    def states(self) -> Iterable[GroupState]:
        """Every group, in no order."""
        return (rank.state for rank in self._ranks.values())

    def update(self, changes: Mapping[GroupKey, GroupState | None]) -> None:
        """Replace the changed groups. ``None`` removes a group."""
        left = [self._leave(rank) for key in changes if (rank := self._ranks.pop(key, None))]
        come = [self._enter(_Rank.of(state)) for state in changes.values() if state]
        if _MANY * (len(left) + len(come)) > len(self._ranks):
            self._ordered = sorted(self._ranks.values())
            return
        for rank in left:
            del self._ordered[bisect_left(self._ordered, rank)]
        for rank in come:
            insort(self._ordered, rank)

    def ranked(self) -> RankedGroups:
        """The groups now."""
        behind = sorted(rank for rank in self._of_burrow.values() if rank.state.summary.status_text != WELL)
        of_burrow = Counter(rank.state.summary.status_text for rank in self._of_burrow.values())
        return RankedGroups(
            worst_first=[rank.state for rank in self._ordered],
            counts=+self._counts - of_burrow,
            of_burrow=of_burrow,
            clusters=sorted(+self._clusters),
            burrow_behind=[rank.key.cluster for rank in behind],
        )

    def _enter(self, rank: _Rank) -> _Rank:
        self._ranks[rank.key] = rank
        self._counts[rank.state.summary.status_text] += 1
        self._clusters[rank.key.cluster] += 1
        if rank.state.is_of_burrow:
            self._of_burrow[rank.key] = rank
        return rank

    def _leave(self, rank: _Rank) -> _Rank:
        self._counts[rank.state.summary.status_text] -= 1
        self._clusters[rank.key.cluster] -= 1
        self._of_burrow.pop(rank.key, None)
        return rank


class LiveGroups:
    """The live groups of a log. They are updated when a page needs them, at most every two seconds.

    The first read takes all groups. Later reads take only the changed groups. One thread reads and the others wait for
    the result, so many readers cost hardly more than one reader.
    """

    def __init__(self, log: Groups, clock: Clock, *, stale_after_ms: int) -> None:
        self._log = log
        self._stale_after_ms = stale_after_ms
        self._log_id: str | None = None
        self._seen_seq = 0
        self._ranking = Ranking()
        self._oldest_ms = sys.maxsize
        self._cache: ThrottledCache[None, RankedGroups] = ThrottledCache(clock, size=1)

    def ranked(self) -> RankedGroups:
        """The groups that are neither expired nor deleted."""
        return self._cache.get(None, self._read)

    def _read(self) -> RankedGroups:
        if self._log_id != self._log.log_id:  # the first read, or a new log has replaced a damaged one
            self._log_id, self._seen_seq = self._log.log_id, self._log.size().last_seq
            self._ranking = Ranking()
            self._take({state.key: state for state in groups(self._log)})
        for page in gently(self._changed()):
            self._take({one.key: one.state for one in page})
        before_ms = self._log.log_time_ms() - self._stale_after_ms
        if self._oldest_ms < before_ms:  # check all groups only when the oldest has expired
            heard = {state.key: state.log_time_ms for state in self._ranking.states()}
            self._ranking.update({key: None for key, at_ms in heard.items() if at_ms < before_ms})
            self._oldest_ms = min((at_ms for at_ms in heard.values() if at_ms >= before_ms), default=sys.maxsize)
        return self._ranking.ranked()

    def _changed(self) -> Iterator[Sequence[Changed]]:
        """The groups that changed since the last read, in pages. The last page is the first page that is not full."""
        full = True
        while full:
            page = self._log.changed(self._seen_seq, _AT_ONCE)
            full = len(page) == _AT_ONCE
            self._seen_seq = page[-1].seq if page else self._seen_seq
            yield page

    def _take(self, changes: Mapping[GroupKey, GroupState | None]) -> None:
        self._ranking.update(changes)
        self._oldest_ms = min([self._oldest_ms, *(state.log_time_ms for state in changes.values() if state)])
