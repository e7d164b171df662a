"""Ranks, filters, counts and sorts the groups of the list, and makes a row for each group on the page."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from karrot.diagnosis.causes import Cause, cause
from karrot.event import NO_PROBLEM, AgeKind, GroupKey, PartitionLag
from karrot.eventlog.base import EventSummary, GroupState, Listed, LogUnavailableError
from karrot.mutes import Mute
from karrot.web.api.answers import mute_finder
from karrot.web.api.routes import GroupFilter
from karrot.web.context import WebContext, if_readable, web_context
from karrot.web.pages.lag_trend_and_chart_shapes import Spark, Trend, point, recent, spark, trend
from karrot.web.pages.page_cache import page_cache

WELL = "OK"

TEST, BURROW = "TEST", "BURROW"

_SEVERITY = {"ERR": 0, "WARN": 1, WELL: 3, "ABANDONED": 4, TEST: 5}
_AT_LEAST = AgeKind.AT_LEAST
_ODD = 2  # a status that Burrow does not document deserves attention
_DETAILED_GROUPS = 500
_AT_ONCE = 10
"""The number of groups whose events, up to 1 MB a group, are read at once."""

_VALUE = itemgetter(0)


def counted_as(state: GroupState) -> str:
    """The status under which a group is counted. Tests count as ``TEST``, and Burrow's own groups as ``BURROW``."""
    if state.is_test:
        return TEST
    return BURROW if state.is_of_burrow else state.summary.status_text


def _place(state: GroupState) -> tuple[int, float, int, GroupKey]:
    """The sort key of a group: status, lag in seconds, lag, name. Unknown values and lower bounds come last."""
    summary = state.summary
    signals, lag = summary.signals, summary.total_lag
    seconds = signals.lag_seconds
    delay = 0.0 if seconds is None or signals.lag_seconds_kind is _AT_LEAST else -1 - seconds
    severity = _SEVERITY.get(TEST if state.is_test else summary.status_text, _ODD)
    return severity, delay, 0 if lag is None else -1 - lag, state.key


def badness(partition: PartitionLag) -> tuple[bool, int, str, int]:
    """The sort key of a partition: a problem first, then the largest lag."""
    lag = partition.current_lag
    return partition.status_text in NO_PROBLEM, 0 if lag is None else -1 - lag, partition.topic, partition.partition


class RankedGroups(NamedTuple):
    """The groups at one time, worst first, with the number of groups by status. Many pages share one object.

    ``counts`` has the number of groups by `counted_as`. ``burrow_behind`` lists the clusters where Burrow's own group
    is not OK.
    """

    worst_first: list[GroupState]
    counts: Counter[str]
    clusters: list[str]
    burrow_behind: list[str]

    @property
    def worst(self) -> GroupState | None:
        """The worst group. ``None`` if every group is OK, abandoned or a test."""
        first = next(iter(self.worst_first), None)
        return None if first is None or first.is_test or first.summary.status_text in NO_PROBLEM else first


def rank(states: Iterable[GroupState]) -> RankedGroups:
    ranked = sorted(states, key=_place)
    return RankedGroups(
        ranked,
        Counter(map(counted_as, ranked)),
        sorted({each.key.cluster for each in ranked}),
        [each.key.cluster for each in ranked if each.summary.status_text != WELL and each.is_of_burrow],
    )


def ranked_groups() -> RankedGroups:
    """The groups that are neither expired nor deleted, at most one second old."""
    return page_cache().get(RankedGroups, lambda: rank(web_context().log.live()), longest_ms=1000)[0]


def details_of_groups() -> Mapping[GroupKey, str]:
    """The topics, owners and client ids of each group, at most a minute old.

    With more than 500 groups, only the topic of the worst partition, because the events have all other names.
    """

    def read() -> dict[GroupKey, str]:
        log = web_context().log
        states = log.live()
        found, with_details, unread = {}, len(states) <= _DETAILED_GROUPS, object()
        for state in states:
            names = {state.summary.max_lag_topic}
            listed = if_readable(partial(log.listed, state), unread) if with_details else None
            with_details = with_details and listed is not unread  # another read would wait for the database again
            if isinstance(listed, Listed):
                names.update(name for each in listed.partitions for name in (each.topic, each.owner, each.client_id))
            found[state.key] = "\n".join(name for name in names if name)
        return found

    return page_cache().get(details_of_groups, read, longest_ms=60_000)[0]


class Order(NamedTuple):
    """A sort order by a column, in the column's natural direction or in reverse.

    Unknown values and lower bounds come last in both directions. Groups with equal values are sorted worst first.
    """

    column: str = "status"
    reverse: bool = False

    @classmethod
    def read(cls, text: str) -> "Order | None":
        """Read ``lag``, or ``-lag`` for the reversed order. Return ``None`` for an unknown column."""
        column = text.removeprefix("-")
        return cls(column, text != column) if column == "status" or column in COLUMNS else None

    def __str__(self) -> str:
        return "-" * self.reverse + self.column

    def sorted(self, worst_first: list[GroupState]) -> list[GroupState]:
        """Sort a list that is worst first into this order."""
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
"""The columns for sorting, except status: a function for the value, and whether the largest value comes first."""


class GroupView(NamedTuple):
    """The values of a group that the list and the group's own page show. Times are in seconds.

    ``age`` is the time since the group's newest event. ``old`` says that half of the time until expiry has passed.
    """

    state: GroupState
    age: float
    old: bool
    incident_age: float | None
    cause: Cause | None
    spark: Spark | None
    trend: Trend | None
    mute: Mute | None


def select(
    ranked: RankedGroups, wanted: GroupFilter, order: Order = WORST_FIRST
) -> tuple[RankedGroups, list[GroupState]]:
    """Return the groups with the wanted names, and a sorted list of those with the wanted status.

    Burrow's own groups are listed only if the wanted status is ``BURROW``, or if no other group has a wanted name.
    """
    by_name = wanted._replace(status=None)
    named = ranked if by_name == GroupFilter() else rank(by_name.among(ranked.worst_first))
    own = [state for state in named.worst_first if state.is_of_burrow]
    if wanted.status == BURROW or (wanted.status is None and len(own) == len(named.worst_first)):
        return named, order.sorted(own)
    found = named.worst_first if wanted.status is None else wanted.among(named.worst_first)
    return named, order.sorted([state for state in found if not state.is_of_burrow] if own else list(found))


def group_view(context: WebContext, mute: Mute | None, state: GroupState, events: Sequence[EventSummary]) -> GroupView:
    """Make the view of a group, with the cause and the trend of the newest events, oldest first.

    The trend of a group that is OK begins with its recovery, because an older trend has ended.
    """
    # With the log's own time, a change of the system clock does not change an event's age.
    age_ms = max(0, context.log.log_time_ms() - state.log_time_ms)
    now_ms = context.clock.wall_ms()
    incident_age = seconds_until(now_ms, state.incident.since_ms if state.incident.open_id else None)
    # Whether the group has committed since its newest event is not known.
    why = cause(state, seconds_until(now_ms - age_ms, state.summary.last_commit_ms))
    lags = [point(event) for event in events]
    began = 0
    if state.summary.status_text == WELL:
        began = next((n for n in range(len(events), 0, -1) if events[n - 1].reported_status != WELL), 0)
    old = age_ms > context.stale_after_ms / 2
    return GroupView(state, age_ms / 1000, old, incident_age, why, spark(lags), trend(lags[began:]), mute)


def seconds_until(until_ms: int, epoch_ms: int | None) -> float | None:
    """The seconds from ``epoch_ms`` to ``until_ms``, at least 0. ``None`` if unknown."""
    return None if epoch_ms is None else max(0, until_ms - epoch_ms) / 1000


def list_rows(context: WebContext, states: Sequence[GroupState]) -> Iterator[GroupView]:
    """Make the views of the listed groups, without trends if the events cannot be read."""
    is_readable, mute_of = True, mute_finder(context)
    for start in range(0, len(states), _AT_ONCE):
        some = states[start : start + _AT_ONCE]
        trails: Sequence[Sequence[EventSummary]] = [()] * len(some)
        if is_readable:  # after a failure, do not wait again
            try:
                trails = recent(context.log, [state.key for state in some])
            except LogUnavailableError:
                is_readable = False
        yield from map(partial(group_view, context), [mute_of(state.key) for state in some], some, trails)
