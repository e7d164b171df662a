"""A group as a line of the list, and as the one that is worst off."""

from collections.abc import Sequence
from typing import NamedTuple

from flask import get_template_attribute
from markupsafe import Markup

from karrot.event import is_burrow_itself
from karrot.eventlog.base import GroupState
from karrot.web.context import Site
from karrot.web.pages.causes import Cause, cause
from karrot.web.pages.charts import Spark, spark
from karrot.web.pages.page_caches import caches
from karrot.web.pages.recent_events import Mark, Trend, trend


class Times(NamedTuple):
    """What passes while nothing is heard of a group. Times are seconds.

    It is ``old`` after half of the silence that makes it expire: what it says is then told as of its newest event.
    """

    age: float
    incident_age: float | None
    since_commit: float | None
    old: bool


class GroupListRow(NamedTuple):
    """What is shown of a group."""

    state: GroupState
    times: Times
    cause: Cause | None
    spark: Spark | None
    trend: Trend | None
    of_burrow: bool


class GroupListLine(NamedTuple):
    """A group in the list: the cells that only a new event changes as they are shown, the others as they are now."""

    state: GroupState
    times: Times
    cells: Markup


def row(here: Site, state: GroupState, trail: Sequence[Mark] | None = None) -> GroupListRow:
    """One group, with what its newest events say."""
    trail = caches().trails.of(here.log, state) if trail is None else trail
    times = _times(here, state)
    return GroupListRow(
        state,
        times,
        cause=cause(state, times.since_commit),
        spark=spark([mark.lag for mark in trail if mark.lag is not None]),
        trend=trend(trail),
        of_burrow=is_burrow_itself(state.key.consumer, state.summary.max_lag_topic),
    )


def line(here: Site, state: GroupState) -> GroupListLine:
    """One group of the list."""
    times = _times(here, state)
    name, version = (here.log.log_id, state.key), (state.seq, times.old)
    cells = caches().rows.get(
        name, version, lambda _earlier: get_template_attribute("parts.html", "cells")(row(here, state))
    )
    return GroupListLine(state, times, cells)


def _times(here: Site, state: GroupState) -> Times:
    incident = state.incident
    # By the log's own time: a clock that was set makes no event younger.
    age_ms = max(0, here.log.log_time_ms() - state.log_time_ms)
    old = age_ms > here.stale_after_ms / 2
    as_of_ms = here.clock.wall_ms() - (age_ms if old else 0)
    return Times(
        age_ms / 1000,
        incident_age=_seconds(as_of_ms, incident.since_ms if incident.open_id else None),
        since_commit=_seconds(as_of_ms, state.summary.last_commit_ms),
        old=old,
    )


def seconds_since(here: Site, epoch_ms: int | None) -> float | None:
    """How long ago; ``None`` if nobody knows."""
    return _seconds(here.clock.wall_ms(), epoch_ms)


def _seconds(until_ms: int, epoch_ms: int | None) -> float | None:
    return None if epoch_ms is None else max(0, until_ms - epoch_ms) / 1000
