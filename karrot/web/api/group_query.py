"""Filters the groups by cluster, status and text, and splits them into pages by name."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from karrot.event import GroupKey
from karrot.eventlog.base import Groups, GroupState

STATUSES = ("ERR", "WARN", "OK", "ABANDONED")
"""The statuses of a group, worst first."""

GROUPS_LIMIT, EVENTS_LIMIT, REJECTS_LIMIT = 100, 50, 50
"""If the request has no ``limit``, an answer has this number of groups, recent events or refused bodies."""

MOST_LIMIT = 1000

_LONGEST_NAME = 256


class GroupFilter(NamedTuple):
    """``None`` admits everything. ``text`` is a part of the group's or cluster's name, in upper or lower case."""

    cluster: str | None = None
    status: str | None = None
    text: str | None = None

    def among(self, states: Iterable[GroupState]) -> Iterator[GroupState]:
        """The groups that match."""
        if self.cluster is not None:
            states = (state for state in states if state.key.cluster == self.cluster)
        if self.status is not None:
            shows_tests = self.cluster is not None  # a test has a status only for a reader who asks for its cluster
            having = (state for state in states if state.summary.status_text == self.status)
            states = (state for state in having if shows_tests or not state.is_test)
        if self.text is not None:
            text = self.text.casefold()
            states = (
                each for each in states if text in each.key.consumer.casefold() or text in each.key.cluster.casefold()
            )
        return iter(states)


class PageCursor(NamedTuple):
    """The position after a group, short enough for a URL. Long names are cut, and a digest keeps them distinct."""

    cluster: str
    consumer: str
    digest: str | None = None

    @classmethod
    def behind(cls, key: GroupKey) -> "PageCursor":
        """The position after a group."""
        if max(map(len, key)) <= _LONGEST_NAME:
            return cls(*key)
        return cls(key.cluster[:_LONGEST_NAME], key.consumer[:_LONGEST_NAME], _digest(key))

    def shares_beginning(self, key: GroupKey) -> bool:
        """Whether a group's names begin with the names in the cursor, which may be cut."""
        return key.cluster.startswith(self.cluster) and key.consumer.startswith(self.consumer)


class PageOfGroups(NamedTuple):
    """Some groups in the order of their keys. ``following`` is the position where the next page starts."""

    groups: list[GroupState]
    following: PageCursor | None


def page_by_key(log: Groups, wanted: GroupFilter, *, after: PageCursor | None, limit: int) -> PageOfGroups:
    """At most ``limit`` groups with keys after ``after``."""
    found = list(islice(wanted.among(_groups_after(log, after)), limit + 1))
    page = found[:limit]
    return PageOfGroups(page, PageCursor.behind(page[-1].key) if len(found) > limit else None)


def _groups_after(log: Groups, place: PageCursor | None) -> Iterator[GroupState]:
    live = log.live()
    if place is None:
        return iter(live)
    start = bisect_right(live, GroupKey(place.cluster, place.consumer), key=lambda state: state.key)
    beyond = islice(live, start, None)
    return beyond if place.digest is None else _behind_digest(beyond, place)


def _behind_digest(states: Iterator[GroupState], place: PageCursor) -> Iterator[GroupState]:
    """The groups after the group with the digest. If that group is gone: all groups after the cut names."""
    passed = []
    for state in states:
        passed.append(state)
        if _digest(state.key) == place.digest:
            return states
        if not place.shares_beginning(state.key):
            break
    return chain(passed, states)


def _digest(key: GroupKey) -> str:
    return hashlib.sha256(repr(key).encode()).hexdigest()[:16]
