"""Groups as people and programs ask for them: filtered, in pages, the worst first."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

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
    "overview",
    "page_by_key",
]

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

    def sorted(self, states: Iterable[GroupState]) -> list[GroupState]:
        """The groups in this order."""
        by_status = sorted(states, key=_worst_first)
        if self.column == "status":
            return by_status[::-1] if self.reverse else by_status
        value, falling = COLUMNS[self.column]
        known = [state for state in by_status if value(state) is not None]
        unknown = [state for state in by_status if value(state) is None]
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
class Overview:
    """What the list shows.

    ``counts`` are groups by status text, for every status whatever is filtered; ``total`` is how many there are
    without any filter; ``matching`` how many ``rows`` there would be without pages. ``worst`` is the group that
    is worst off, ``None`` if all are well.
    """

    counts: Counter[str]
    clusters: list[str]
    total: int
    matching: int
    worst: GroupState | None
    rows: list[GroupState]


def overview(
    states: Sequence[GroupState], wanted: GroupFilter, *, page: int, size: int, order: Order = WORST_FIRST
) -> Overview:
    """Page ``page`` (from 1) of the groups wanted."""
    named = [state for state in states if wanted.admits_name(state.key)]
    matching = order.sorted(filter(wanted.admits, named))
    return Overview(
        counts=Counter(state.summary.status_text for state in named),
        clusters=sorted({state.key.cluster for state in states}),
        total=len(states),
        matching=len(matching),
        worst=min((state for state in named if state.summary.status_text != "OK"), key=_worst_first, default=None),
        rows=matching[(page - 1) * size : page * size],
    )


def _worst_first(state: GroupState) -> tuple[int, float, int, GroupKey]:
    """By status, then by how long it is behind; a group whose delay nobody knows comes after those that have one."""
    summary = state.summary
    lag, seconds = summary.total_lag, summary.signals.lag_seconds
    severity = _SEVERITY.get(summary.status_text, _ODD)
    return severity, 0.0 if seconds is None else -1 - seconds, 0 if lag is None else -1 - lag, state.key
