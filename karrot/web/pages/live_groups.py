"""Every live group, the worst first: kept in order by what changed, not sorted anew for everybody who looks."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from karrot.event import GroupKey, is_burrow_itself
from karrot.eventlog.base import GroupState

__all__ = ["WELL", "RankedGroups", "Ranking"]

WELL = "OK"

_SEVERITY = {"ERR": 0, "WARN": 1, WELL: 3}
_ODD = 2  # a status that nobody knows is worth a look
_MANY = 10
"""If more than one in so many groups changed, sorting them all is cheaper than finding the place of each."""


@dataclass(frozen=True, slots=True)
class RankedGroups:
    """Every group at one moment, the worst first, and what can be said of all of them. Made once for many readers.

    ``of_burrow`` are the groups of Burrow itself, by status, which ``counts`` leaves out; ``burrow_behind`` are the
    clusters where it is not OK.
    """

    worst_first: list[GroupState]
    counts: Counter[str]
    of_burrow: Counter[str]
    clusters: list[str]
    burrow_behind: list[str]

    @classmethod
    def of(cls, states: Iterable[GroupState]) -> "RankedGroups":
        """Sorted and counted."""
        ranking = Ranking()
        ranking.update({state.key: state for state in states})
        return ranking.standing()


class _Rank(NamedTuple):
    """By status, then by how long it is behind; a group whose delay nobody knows comes after those that have one.

    No two have the same key, so that nothing behind it is ever compared.
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
    """The groups in order, and counted, as they change. Not for several threads at once."""

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
        """Take the groups as they are now; ``None`` for one that is gone."""
        left = [self._leave(rank) for key in changes if (rank := self._ranks.pop(key, None))]
        come = [self._enter(_Rank.of(state)) for state in changes.values() if state]
        if _MANY * (len(left) + len(come)) > len(self._ranks):
            self._ordered = sorted(self._ranks.values())
            return
        for rank in left:
            del self._ordered[bisect_left(self._ordered, rank)]
        for rank in come:
            insort(self._ordered, rank)

    def standing(self) -> RankedGroups:
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
        if is_burrow_itself(rank.key.consumer, rank.state.summary.max_lag_topic):
            self._of_burrow[rank.key] = rank
        return rank

    def _leave(self, rank: _Rank) -> _Rank:
        self._counts[rank.state.summary.status_text] -= 1
        self._clusters[rank.key.cluster] -= 1
        self._of_burrow.pop(rank.key, None)
        return rank
