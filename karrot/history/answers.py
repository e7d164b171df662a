"""What the history answers with. Moments are in UTC, lags are messages; ``None`` is what was not known."""

from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["GroupHistory", "Incident", "Point", "TimeSeries"]


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """A consumer group over a span of time.

    ``status`` is the worst of the last minute in which something was said, ``worst_status`` that of all; a minute is
    not OK if one of its events was worse than OK. ``incidents`` counts those that overlap the span.
    """

    cluster: str
    group: str
    first_at: datetime
    last_at: datetime
    status: str
    worst_status: str
    lag: int | None
    lag_max: int | None
    lag_seconds_max: float | None
    minutes: int
    minutes_not_ok: int
    incidents: int


@dataclass(frozen=True, slots=True)
class Point:
    """The values of a time series, in the order of its metrics, from ``at`` on for one step of it."""

    at: datetime
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Metrics of one group; steps in which nothing was said have no point. ``cluster`` is the one that has the group.

    ``cluster`` is ``None`` where nothing was found and none was named.
    """

    cluster: str | None
    group: str
    metrics: tuple[str, ...]
    granularity: timedelta
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident as the table ``incidents`` has it; ``ended_at`` and ``ended_by`` are ``None`` while it is open."""

    incident_id: str | None
    cluster: str
    group: str
    started_at: datetime
    ended_at: datetime | None
    ended_by: str | None
    worst_status: str | None
    peak_lag: int | None
    events: int
    topics: tuple[str, ...]
