"""Groups as people and programs ask for them: filtered, in pages, the worst first."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from typing import Any, NamedTuple

from karrot.event import GroupKey, is_burrow_itself
from karrot.eventlog.base import EventLog, GroupState, groups
from karrot.web.pages.live_groups import WELL, RankedGroups

STATUSES = ("ERR", "WARN", "OK")
"""What a group's status may be, the worst first."""

_LONGEST_NAME = 256
_VALUE = itemgetter(0)


class GroupFilter(NamedTuple):
    """``None`` admits everything. ``text`` is looked for in the names of group and cluster, whatever its case."""

    cluster: str | None = None
    status: str | None = None
    text: str | None = None

    def among(self, states: Iterable[GroupState]) -> Iterator[GroupState]:
        """The groups that are wanted."""
        if self.cluster is not None:
            states = (state for state in states if state.key.cluster == self.cluster)
        if self.status is not None:
            states = (state for state in states if state.summary.status_text == self.status)
        if self.text is not None:
            text = self.text.casefold()
            states = (
                each for each in states if text in each.key.consumer.casefold() or text in each.key.cluster.casefold()
            )
        return iter(states)


class PageCursor(NamedTuple):
    """The place behind a group, short enough for an address: long names are cut, and told apart by their digest."""

    cluster: str
    consumer: str
    digest: str | None = None

    @classmethod
    def behind(cls, key: GroupKey) -> "PageCursor":
        """The place behind a group."""
        if max(map(len, key)) <= _LONGEST_NAME:
            return cls(*key)
        return cls(key.cluster[:_LONGEST_NAME], key.consumer[:_LONGEST_NAME], _digest(key))

    def shares_beginning(self, key: GroupKey) -> bool:
        """Whether a group's names begin like those of the group before the place."""
        return key.cluster.startswith(self.cluster) and key.consumer.startswith(self.consumer)


class PageOfGroups(NamedTuple):
    """Some groups in the order of their keys; ``following`` is where the next page starts."""

    groups: list[GroupState]
    following: PageCursor | None


def page_by_key(log: EventLog, wanted: GroupFilter, *, after: PageCursor | None, limit: int) -> PageOfGroups:
    """At most ``limit`` groups with keys beyond ``after``."""
    found = list(islice(wanted.among(_groups_after(log, after)), limit + 1))
    page = found[:limit]
    return PageOfGroups(page, PageCursor.behind(page[-1].key) if len(found) > limit else None)


def _groups_after(log: EventLog, place: PageCursor | None) -> Iterator[GroupState]:
    if place is None:
        return groups(log)
    beyond = groups(log, GroupKey(place.cluster, place.consumer))
    return beyond if place.digest is None else _behind_digest(beyond, place)


def _behind_digest(states: Iterator[GroupState], place: PageCursor) -> Iterator[GroupState]:
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
        valued = [(value(state), state) for state in worst_first]
        known = sorted((each for each in valued if each[0] is not None), key=_VALUE, reverse=falling != self.reverse)
        return [state for _, state in known] + [state for each, state in valued if each is None]


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


def overview(
    ranked: RankedGroups, wanted: GroupFilter, *, page: int, size: int, order: Order = WORST_FIRST
) -> Overview:
    """Page ``page`` (from 1) of the groups wanted."""
    everything = ranked.worst_first
    by_name = wanted._replace(status=None)
    named = everything if by_name == GroupFilter() else list(by_name.among(everything))
    shown = named if wanted.status is None else list(GroupFilter(status=wanted.status).among(named))
    matching = order.sorted(shown)
    worst = named[0] if named and named[0].summary.status_text != WELL else None
    counts, of_burrow = (ranked.counts, ranked.of_burrow) if named is everything else _counted(named)
    return Overview(
        counts=counts,
        of_burrow=of_burrow,
        clusters=ranked.clusters,
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
