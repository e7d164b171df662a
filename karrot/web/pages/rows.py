"""A group as a line of the list, and as the one that is worst off."""

from collections.abc import Sequence
from typing import NamedTuple

from karrot.event import is_burrow_itself
from karrot.eventlog.base import GroupState
from karrot.web.pages.causes import Cause, cause
from karrot.web.pages.drawing import Spark, spark
from karrot.web.pages.shared import shared
from karrot.web.pages.trails import Mark, Trend, trend
from karrot.web.site import Site

__all__ = ["Row", "row", "seconds_since"]


class Row(NamedTuple):
    """What is shown of a group. Times are seconds."""

    state: GroupState
    age: float
    incident_age: float | None
    cause: Cause | None
    spark: Spark | None
    trend: Trend | None
    of_burrow: bool


def row(here: Site, state: GroupState, trail: Sequence[Mark] | None = None) -> Row:
    """One group, with what its newest events say."""
    trail = shared().trails.of(here.log, state) if trail is None else trail
    incident, summary = state.incident, state.summary
    return Row(
        state,
        # By the log's own time: a clock that was set makes no event younger.
        age=max(0, here.log.log_time_ms() - state.log_time_ms) / 1000,
        incident_age=seconds_since(here, incident.since_ms if incident.open_id else None),
        cause=cause(state, seconds_since(here, summary.last_commit_ms)),
        spark=spark([mark.lag for mark in trail if mark.lag is not None]),
        trend=trend(trail),
        of_burrow=is_burrow_itself(state.key.consumer, summary.max_lag_topic),
    )


def seconds_since(here: Site, epoch_ms: int | None) -> float | None:
    """How long ago; ``None`` if nobody knows."""
    return None if epoch_ms is None else max(0, here.clock.wall_ms() - epoch_ms) / 1000
