"""Ranks groups without a log."""

from collections.abc import Iterable

from karrot.eventlog.base import GroupState
from karrot.web.pages.live_groups_ranking import RankedGroups, Ranking


def rank(states: Iterable[GroupState]) -> RankedGroups:
    """Sort and count the groups at once."""
    ranking = Ranking()
    ranking.update({state.key: state for state in states})
    return ranking.ranked()
