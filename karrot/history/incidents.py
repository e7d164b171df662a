"""What incidents there were: the questions, their rows and their order."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from karrot.history.answers import Incident
from karrot.history.duck import Row
from karrot.history.spans import EPOCH, moment_of

__all__ = ["COUNTS", "INCIDENTS", "IncidentOrder", "incident_of", "incidents_in_order"]

_OVERLAPS = "epoch_ms(started_at) < $end AND (ended_at IS NULL OR epoch_ms(ended_at) >= $start)"

INCIDENTS = f"""
SELECT incident_id, cluster, consumer, epoch_ms(started_at), epoch_ms(ended_at), ended_by, worst_status, peak_lag,
  events, topics
FROM {{table}} WHERE {_OVERLAPS}{{named}}
"""  # noqa: S608 (constants; every value is bound)

COUNTS = f"""
SELECT cluster, consumer, count(*) FROM {{table}} WHERE {_OVERLAPS}{{named}} GROUP BY ALL
"""  # noqa: S608 (as above)
"""How many of them each group had."""


class IncidentOrder(StrEnum):
    """Which incident comes first."""

    NEWEST = "newest"
    OLDEST = "oldest"
    PEAK_LAG = "peak_lag"
    LONGEST = "longest"


def incident_of(row: Row) -> Incident:
    """An incident of a row of `INCIDENTS`."""
    incident_id, cluster, group, started, ended, ended_by, worst, peak, events, topics = row
    end = None if ended is None else moment_of(ended)
    return Incident(
        incident_id, cluster, group, moment_of(started), end, ended_by, worst, peak, events, tuple(topics or ())
    )


def incidents_in_order(incidents: Iterable[Incident], order: IncidentOrder) -> list[Incident]:
    """The incidents in that order."""
    return sorted(incidents, key=_KEYS[order])


def _length(incident: Incident) -> timedelta:
    return (incident.ended_at or datetime.max.replace(tzinfo=UTC)) - incident.started_at


_KEYS = {
    IncidentOrder.NEWEST: lambda each: (EPOCH - each.started_at, each.cluster, each.group),
    IncidentOrder.OLDEST: lambda each: (each.started_at, each.cluster, each.group),
    IncidentOrder.PEAK_LAG: lambda each: (-(each.peak_lag or 0), each.started_at),
    IncidentOrder.LONGEST: lambda each: (-_length(each), each.started_at),
}
