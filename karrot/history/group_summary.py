"""One consumer group over the last weeks, as its page shows it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from karrot.event import DayRange, Incident, TimeRange
from karrot.history.reader import History

__all__ = ["Past", "SummaryHour", "past"]

_HOUR = timedelta(hours=1)


class SummaryHour(NamedTuple):
    """One hour in which something was said; ``status`` is the worst of it as Burrow's number."""

    at: datetime
    lag_max: float | None
    lag_seconds: float | None
    status: float | None


@dataclass(frozen=True, slots=True)
class Past:
    """What the tables say of a group between two moments; incidents the newest first.

    ``missing`` are the days on which incidents of the group are not known, as `History.held` says.
    """

    start: datetime
    end: datetime
    hours: tuple[SummaryHour, ...]
    incidents: tuple[Incident, ...]
    missing: tuple[DayRange, ...]


def past(history: History, cluster: str, group: str, *, until: datetime, days: int = 30) -> Past:
    """The last ``days``. Raises `HistoryError`."""
    span = TimeRange(until - timedelta(days=days), until)
    metrics = ("lag_max", "lag_seconds", "status")
    series = history.timeseries(group, span, cluster=cluster, metrics=metrics, granularity=_HOUR)
    hours = tuple(SummaryHour(point.at, *point.values) for point in series.points)
    # In this order: what derive adds between the two is left out rather than taken for nothing.
    missing = history.held(span, "incidents", cluster=cluster, group=group).missing
    incidents = history.incidents(span, cluster=cluster, group=group)
    return Past(span.start, span.end, hours, incidents, missing)
