"""Makes the list of groups. It filters, counts and sorts the groups, and makes a row for each group on the page."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from flask import get_template_attribute
from markupsafe import Markup

from karrot.event import NO_PROBLEM
from karrot.eventlog.base import GroupState, LogUnavailableError
from karrot.web.api.group_query import GroupFilter
from karrot.web.context import WebContext
from karrot.web.pages.causes import Cause, cause
from karrot.web.pages.charts import Spark, spark
from karrot.web.pages.lag_trend import Mark, Trend, trend
from karrot.web.pages.live_groups_ranking import TEST, RankedGroups, counted_as
from karrot.web.pages.page_caches import caches

_VALUE = itemgetter(0)


class Order(NamedTuple):
    """How groups are sorted: by a column, in the column's natural direction or in reverse.

    Unknown values and lower bounds come last in both directions. Groups with equal values are sorted worst first.
    """

    column: str = "status"
    reverse: bool = False

    @classmethod
    def read(cls, text: str) -> "Order | None":
        """Read ``lag``, or ``-lag`` for the reversed order. ``None`` if there is no such column."""
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
    "behind": (lambda state: state.summary.signals.lag_seconds_known, True),
    "catch-up": (lambda state: state.summary.signals.catch_up_seconds, True),
    "incident": (lambda state: state.incident.since_ms if state.incident.open_id else None, False),
    "event": (lambda state: state.log_time_ms, True),
}
"""The columns for sorting, except status. Each has a function for its value, and says if the largest comes first."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The content of the list.

    ``counts`` has the number of groups by status, without the filter by status and without Burrow's own groups.
    ``of_burrow`` has these numbers for Burrow's own groups. ``total`` is the number of all groups without any filter.
    ``matching`` is the number of groups that match. ``rows`` are the matching groups on this page. ``worst`` is the
    worst group, or ``None`` if all are OK.
    """

    counts: Counter[str]
    of_burrow: Counter[str]
    clusters: list[str]
    total: int
    matching: int
    worst: GroupState | None
    rows: list[GroupState]


class Times(NamedTuple):
    """The times of a group in seconds. ``age`` is the time since the group's newest event.

    ``old`` says that half of the silence until expiry has passed. Then the other times are as of the newest event.
    """

    age: float
    incident_age: float | None
    since_commit: float | None
    old: bool


class GroupView(NamedTuple):
    """The values of a group that the list and the group's own page show."""

    state: GroupState
    times: Times
    cause: Cause | None
    spark: Spark | None
    trend: Trend | None
    of_burrow: bool


class ListRow(NamedTuple):
    """A group in the list. ``cells`` is cached HTML that changes only with a new event. ``times`` are as of now."""

    state: GroupState
    times: Times
    cells: Markup


def overview(
    ranked: RankedGroups, wanted: GroupFilter, *, page: int, size: int, order: Order = WORST_FIRST
) -> Overview:
    """Page number ``page`` (from 1) of the groups that match ``wanted``."""
    everything = ranked.worst_first
    by_name = wanted._replace(status=None)
    named = everything if by_name == GroupFilter() else list(by_name.among(everything))
    shown = named if wanted.status is None else list(wanted.among(named))
    matching = order.sorted(shown)
    worst = named[0] if named and counted_as(named[0]) not in {*NO_PROBLEM, TEST} else None
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


def group_view(context: WebContext, state: GroupState, trail: Sequence[Mark] | None = None) -> GroupView:
    """One group with its cause and trend, from its newest events."""
    trail = caches().trails.of(context.log, state) if trail is None else trail
    times = _times(context, state)
    return GroupView(
        state,
        times,
        cause=cause(state, times.since_commit),
        spark=spark([mark.lag for mark in trail if mark.lag is not None]),
        trend=trend(trail),
        of_burrow=state.is_of_burrow,
    )


def list_rows(context: WebContext, states: Iterable[GroupState]) -> Iterator[ListRow]:
    """The groups of the list. If a group has no new event, its cells come from the cache."""
    is_readable = True
    for state in states:
        times = _times(context, state)
        try:
            cells = _cells(context, state, times, is_readable=is_readable)
        except LogUnavailableError:
            is_readable = False
            cells = _new_cells(group_view(context, state, ()))
        yield ListRow(state, times, cells)


def _cells(context: WebContext, state: GroupState, times: Times, *, is_readable: bool) -> Markup:
    def make(_earlier: Markup | None) -> Markup:
        if not is_readable:  # do not wait again for each further row
            raise LogUnavailableError("an earlier row could not be read")
        return _new_cells(group_view(context, state))

    return caches().rows.get((context.log.log_id, state.key), (state.seq, times.old), make)


def _new_cells(view: GroupView) -> Markup:
    cells: Markup = get_template_attribute("parts.html", "cells")(view)
    return cells


def _times(context: WebContext, state: GroupState) -> Times:
    incident = state.incident
    # Use the log's own time. Then a change of the system clock does not change an event's age.
    age_ms = max(0, context.log.log_time_ms() - state.log_time_ms)
    old = age_ms > context.stale_after_ms / 2
    as_of_ms = context.clock.wall_ms() - (age_ms if old else 0)
    return Times(
        age_ms / 1000,
        incident_age=_seconds(as_of_ms, incident.since_ms if incident.open_id else None),
        since_commit=_seconds(as_of_ms, state.summary.last_commit_ms),
        old=old,
    )


def seconds_since(context: WebContext, epoch_ms: int | None) -> float | None:
    """The seconds since a time. ``None`` if the time is not known."""
    return _seconds(context.clock.wall_ms(), epoch_ms)


def _seconds(until_ms: int, epoch_ms: int | None) -> float | None:
    return None if epoch_ms is None else max(0, until_ms - epoch_ms) / 1000


def _counted(states: Sequence[GroupState]) -> tuple[Counter[str], Counter[str]]:
    of_burrow = Counter(state.summary.status_text for state in states if state.is_of_burrow)
    return Counter(map(counted_as, states)) - of_burrow, of_burrow
