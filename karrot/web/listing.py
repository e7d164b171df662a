"""Groups as people and programs ask for them: filtered, in pages, the worst first."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

from karrot.eventlog.base import EventLog, GroupKey, GroupState, groups

__all__ = ["STATUSES", "GroupFilter", "Overview", "Page", "Place", "overview", "page_by_key"]

STATUSES = ("ERR", "WARN", "OK")
"""What a group's status may be, the worst first."""

_LONGEST_NAME = 256

_SEVERITY = {"ERR": 0, "WARN": 1, "OK": 3}
_ODD = 2  # a status that nobody knows is worth a look


class GroupFilter(NamedTuple):
    """``None`` admits everything. ``text`` is looked for in the names of group and cluster, whatever its case."""

    cluster: str | None = None
    status: str | None = None
    text: str | None = None

    def admits(self, state: GroupState) -> bool:
        """Whether a group is wanted."""
        return self.status in (None, state.summary.status_text) and self.admits_name(state.key)

    def admits_name(self, key: GroupKey) -> bool:
        """Whether a group is wanted, status aside."""
        if self.cluster not in (None, key.cluster):
            return False
        if self.text is None:
            return True
        wanted = self.text.casefold()
        return wanted in key.consumer.casefold() or wanted in key.cluster.casefold()


class Place(NamedTuple):
    """The place behind a group, short enough for an address: long names are cut, and told apart by their digest."""

    cluster: str
    consumer: str
    digest: str | None = None

    @classmethod
    def behind(cls, key: GroupKey) -> "Place":
        """The place behind a group."""
        if max(map(len, key)) <= _LONGEST_NAME:
            return cls(*key)
        return cls(key.cluster[:_LONGEST_NAME], key.consumer[:_LONGEST_NAME], _digest(key))

    def shares_beginning(self, key: GroupKey) -> bool:
        """Whether a group's names begin like those of the group before the place."""
        return key.cluster.startswith(self.cluster) and key.consumer.startswith(self.consumer)


class Page(NamedTuple):
    """Some groups in the order of their keys; ``following`` is where the next page starts."""

    groups: list[GroupState]
    following: Place | None


def page_by_key(log: EventLog, wanted: GroupFilter, *, after: Place | None, limit: int) -> Page:
    """At most ``limit`` groups with keys beyond ``after``."""
    found = list(islice(filter(wanted.admits, _groups_after(log, after)), limit + 1))
    page = found[:limit]
    return Page(page, Place.behind(page[-1].key) if len(found) > limit else None)


def _groups_after(log: EventLog, place: Place | None) -> Iterator[GroupState]:
    if place is None:
        return groups(log)
    beyond = groups(log, GroupKey(place.cluster, place.consumer))
    return beyond if place.digest is None else _behind_digest(beyond, place)


def _behind_digest(states: Iterator[GroupState], place: Place) -> Iterator[GroupState]:
    """The groups behind that with the digest; if it is gone, all that follow the beginning of its names."""
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


@dataclass(frozen=True, slots=True)
class Overview:
    """What the first page shows.

    ``counts`` are groups by status text, for every status whatever is filtered; ``total`` is how many there are
    without any filter; ``matching`` how many ``rows`` there would be without pages.
    """

    counts: Counter[str]
    clusters: list[str]
    total: int
    matching: int
    rows: list[GroupState]


def overview(log: EventLog, wanted: GroupFilter, *, page: int, size: int) -> Overview:
    """Page ``page`` (from 1) of the groups wanted, the worst first."""
    everything = list(groups(log))
    named = [state for state in everything if wanted.admits_name(state.key)]
    matching = sorted(filter(wanted.admits, named), key=_worst_first)
    return Overview(
        counts=Counter(state.summary.status_text for state in named),
        clusters=sorted({state.key.cluster for state in everything}),
        total=len(everything),
        matching=len(matching),
        rows=matching[(page - 1) * size : page * size],
    )


def _worst_first(state: GroupState) -> tuple[int, int, GroupKey]:
    lag = state.summary.total_lag
    return _SEVERITY.get(state.summary.status_text, _ODD), 0 if lag is None else -1 - lag, state.key
