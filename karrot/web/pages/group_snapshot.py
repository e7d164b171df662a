"""Every live group at one moment, read once for all who look."""

import sys
from collections.abc import Iterator, Mapping, Sequence

from karrot.clock import Clock
from karrot.event import GroupKey
from karrot.eventlog.base import Changed, EventLog, GroupState, groups
from karrot.web.pages.cache import Again
from karrot.web.pages.live_groups import RankedGroups, Ranking
from karrot.web.pages.time_slicing import gently

__all__ = ["Board"]

_AT_ONCE = 5
"""So many changed groups are about one burst."""


class Board:
    """The groups, read again when `Again` has none that are young enough: 10,000 of them every two seconds.

    All of them are read once, then those that were told of since. One thread reads, others wait for it: a worker has
    one board, and whoever looks costs hardly more than who looks alone.
    """

    def __init__(self, log: EventLog, clock: Clock, *, stale_after_ms: int) -> None:
        self._log = log
        self._stale_after_ms = stale_after_ms
        self._log_id: str | None = None
        self._told = 0
        self._ranking = Ranking()
        self._oldest_ms = sys.maxsize
        self._again: Again[RankedGroups] = Again(clock)

    def standing(self) -> RankedGroups:
        """The groups that have not expired and are not deleted."""
        return self._again.get("all", self._read)

    def _read(self) -> RankedGroups:
        self._catch_up()
        return self._ranking.standing()

    def _catch_up(self) -> None:
        if self._log_id != self._log.log_id:  # the first time, or a new log in place of a damaged one
            self._log_id, self._told = self._log.log_id, self._log.size().last_seq
            self._ranking = Ranking()
            self._take({state.key: state for state in groups(self._log)})
        for page in gently(self._changed()):
            self._take({one.key: one.state for one in page})
        self._forget(self._log.log_time_ms() - self._stale_after_ms)

    def _changed(self) -> Iterator[Sequence[Changed]]:
        """What was told of since, until a page is not full: of what comes faster than it is read, there is no end."""
        full = True
        while full:
            page = self._log.changed(self._told, _AT_ONCE)
            full = len(page) == _AT_ONCE
            self._told = page[-1].seq if page else self._told
            yield page

    def _take(self, changes: Mapping[GroupKey, GroupState | None]) -> None:
        self._ranking.update(changes)
        self._oldest_ms = min([self._oldest_ms, *(state.log_time_ms for state in changes.values() if state)])

    def _forget(self, before_ms: int) -> None:
        """Leave out who fell silent; nobody has to be looked at while the oldest of all is young enough."""
        if self._oldest_ms < before_ms:
            heard = {state.key: state.log_time_ms for state in self._ranking.states()}
            self._ranking.update({key: None for key, at_ms in heard.items() if at_ms < before_ms})
            self._oldest_ms = min((at_ms for at_ms in heard.values() if at_ms >= before_ms), default=sys.maxsize)
