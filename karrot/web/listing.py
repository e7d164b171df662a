"""Groups as people and programs ask for them: filtered, in pages, the worst first."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from typing import Any, NamedTuple

from karrot.event import is_burrow_itself
from karrot.eventlog.base import EventLog, GroupKey, GroupState, groups

__all__ = [
    "COLUMNS",
    "STATUSES",
    "WORST_FIRST",
    "GroupFilter",
    "Order",
    "Overview",
    "Page",
    "Place",
    "Standing",
    "overview",
    "page_by_key",
]

STATUSES = ("ERR", "WARN", "OK")
"""What a group's status may be, the worst first."""

_LONGEST_NAME = 256

_SEVERITY = {"ERR": 0, "WARN": 1, "OK": 3}
_WELL = "OK"
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


class Order(NamedTuple):
    """How groups are sorted: by a column in its natural direction, or the other way round.

    Unknown values come last, whichever way; equal ones are the worst first.
    """

    column: str = "status"
    reverse: bool = False

    @classmethod
    def read(cls, text: str) -> "Order | None":
        """``lag``, or ``-lag`` for the other way round; ``None`` for no column."""
        column = text.removeprefix("-")
        return cls(column, text != column) if column == "status" or column in COLUMNS else None

    def __str__(self) -> str:
        return "-" * self.reverse + self.column

    def sorted(self, worst_first: list[GroupState]) -> list[GroupState]:
        """The groups in this order."""
        if self.column == "status":
            return worst_first[::-1] if self.reverse else worst_first
        value, falling = COLUMNS[self.column]
        known = [state for state in worst_first if value(state) is not None]
        unknown = [state for state in worst_first if value(state) is None]
        return [*sorted(known, key=value, reverse=falling != self.reverse), *unknown]


WORST_FIRST = Order()

COLUMNS: Mapping[str, tuple[Callable[[GroupState], Any], bool]] = {
    "group": (lambda state: (state.key.consumer.casefold(), state.key), False),
    "cluster": (lambda state: (state.key.cluster.casefold(), state.key), False),
    "lag": (lambda state: state.summary.total_lag, True),
    "behind": (lambda state: state.summary.signals.lag_seconds, True),
    "catch-up": (lambda state: state.summary.signals.catch_up_seconds, True),
    "incident": (lambda state: state.incident.since_ms if state.incident.open_id else None, False),
    "event": (lambda state: state.log_time_ms, True),
}
"""By what the list can be sorted beside status: a value, and whether the largest comes first."""


@dataclass(frozen=True, slots=True)
class Standing:
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
    def of(cls, states: Iterable[GroupState]) -> "Standing":
        """Sorted and counted."""
        ordered = sorted(states, key=_worst_first)
        clusters = sorted({state.key.cluster for state in ordered})
        bad = takewhile(lambda state: state.summary.status_text != _WELL, ordered)
        behind = [state.key.cluster for state in bad if _is_of_burrow(state)]
        return cls(ordered, *_counted(ordered), clusters, behind)


@dataclass(frozen=True, slots=True)
class Overview:
    """What the list shows.

    ``counts`` are groups by status text, for every status whatever is filtered, and ``of_burrow`` those of Burrow
    itself, which are not among them; ``total`` is how many there are of both without any filter; ``matching`` how many
    ``rows`` there would be without pages. ``worst`` is the group that is worst off, ``None`` if all are well.
    """

    counts: Counter[str]
    of_burrow: Counter[str]
    clusters: list[str]
    total: int
    matching: int
    worst: GroupState | None
    rows: list[GroupState]


def overview(standing: Standing, wanted: GroupFilter, *, page: int, size: int, order: Order = WORST_FIRST) -> Overview:
    """Page ``page`` (from 1) of the groups wanted."""
    everything = standing.worst_first
    by_name = wanted._replace(status=None)
    named = everything if by_name == GroupFilter() else [each for each in everything if by_name.admits(each)]
    shown = named if wanted.status is None else [each for each in named if wanted.admits(each)]
    matching = order.sorted(shown)
    worst = named[0] if named and named[0].summary.status_text != _WELL else None
    counts, of_burrow = (standing.counts, standing.of_burrow) if named is everything else _counted(named)
    return Overview(
        counts=counts,
        of_burrow=of_burrow,
        clusters=standing.clusters,
        total=len(everything),
        matching=len(matching),
        worst=worst,
        rows=matching[(page - 1) * size : page * size],
    )


def _counted(states: Sequence[GroupState]) -> tuple[Counter[str], Counter[str]]:
    of_burrow = Counter(state.summary.status_text for state in states if _is_of_burrow(state))
    return Counter(state.summary.status_text for state in states) - of_burrow, of_burrow


def _is_of_burrow(state: GroupState) -> bool:
    return is_burrow_itself(state.key.consumer, state.summary.max_lag_topic)


def _worst_first(state: GroupState) -> tuple[int, float, int, GroupKey]:
    """By status, then by how long it is behind; a group whose delay nobody knows comes after those that have one."""
    summary = state.summary
    lag, seconds = summary.total_lag, summary.signals.lag_seconds
    severity = _SEVERITY.get(summary.status_text, _ODD)
    return severity, 0.0 if seconds is None else -1 - seconds, 0 if lag is None else -1 - lag, state.key
