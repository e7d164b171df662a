"""Ranks all live groups, worst first. It moves only the groups that changed."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from karrot.clock import Clock
from karrot.event import GroupKey
from karrot.eventlog.base import Groups, GroupState
from karrot.web.pages.gil_yielding import rest
from karrot.web.pages.value_cache import ThrottledCache

WELL = "OK"

TEST = "TEST"

_SEVERITY = {"ERR": 0, "WARN": 1, WELL: 3, "ABANDONED": 4, TEST: 5}
_ODD = 2  # a status that Burrow does not document deserves attention
_MANY = 10
"""If more than one in ten groups changed, sorting all groups is cheaper than inserting each one."""


def counted_as(state: GroupState) -> str:
    """The status under which a group is ranked and counted. Tests are apart, whatever their status is."""
    return TEST if state.is_test else state.summary.status_text


@dataclass(frozen=True, slots=True)
class RankedGroups:
    """Every group at one moment, worst first, with counts. Many readers share one object.

    ``counts`` has the number of groups by `counted_as`, without Burrow's own groups. ``of_burrow`` has these numbers
    for Burrow's own groups. ``burrow_behind`` lists the clusters where Burrow's own group is not OK.
    """

    worst_first: list[GroupState]
    counts: Counter[str]
    of_burrow: Counter[str]
    clusters: list[str]
    burrow_behind: list[str]


class _Rank(NamedTuple):
    """A group's place: by status, then by lag in seconds, then by lag. Unknown values and lower bounds come last.

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
        lag, seconds = summary.total_lag, summary.signals.lag_seconds_known
        severity = _SEVERITY.get(counted_as(state), _ODD)
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
        self._counts[counted_as(rank.state)] += 1
        self._clusters[rank.key.cluster] += 1
        if rank.state.is_of_burrow:
            self._of_burrow[rank.key] = rank
        return rank

    def _leave(self, rank: _Rank) -> _Rank:
        self._counts[counted_as(rank.state)] -= 1
        self._clusters[rank.key.cluster] -= 1
        self._of_burrow.pop(rank.key, None)
        return rank


class LiveRanking:
    """The live groups of a log, ranked. They are updated when a page needs them, at most once a second.

    One thread reads and the others wait for the result, so many readers cost hardly more than one reader.
    """

    def __init__(self, log: Groups, clock: Clock) -> None:
        self._log = log
        self._ranking = Ranking()
        self._ranked: dict[GroupKey, GroupState] = {}
        self._cache: ThrottledCache[None, RankedGroups] = ThrottledCache(clock, size=1)

    def ranked(self) -> RankedGroups:
        """The groups that are neither expired nor deleted."""
        return self._cache.get(None, self._read)

    def _read(self) -> RankedGroups:
        live = {state.key: state for state in self._log.live(rest)}
        changes: dict[GroupKey, GroupState | None] = dict.fromkeys(self._ranked.keys() - live.keys())
        changes |= {key: state for key, state in live.items() if self._ranked.get(key) is not state}
        self._ranking.update(changes)
        self._ranked = live
        return self._ranking.ranked()
