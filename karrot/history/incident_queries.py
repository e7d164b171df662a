"""Lists the incidents of a time range, and finds days whose incidents are missing in the tables."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime
from enum import StrEnum

from karrot.event import GroupKey, Incident
from karrot.history.duckdb_reader import Duck, Row, Table
from karrot.history.moments import moment_of
from karrot.text import EPOCH

_OVERLAPS = "epoch_ms(started_at) < $end AND (ended_at IS NULL OR epoch_ms(ended_at) >= $start)"

INCIDENTS = f"""
SELECT incident_id, cluster, consumer, epoch_ms(started_at), epoch_ms(ended_at), ended_by, worst_status, peak_lag,
  events, topics
FROM {{table}} WHERE {_OVERLAPS}{{named}}
"""  # noqa: S608 (constants; every value is bound)

COUNTS = f"""
SELECT cluster, consumer, count(*) FROM {{table}} WHERE {_OVERLAPS}{{named}} GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)
"""The number of incidents of each group."""

_BAD = """
SELECT filename, cluster, consumer, incident_id, epoch_ms(min(first_at)), epoch_ms(max(last_at))
FROM {table_with_files}
WHERE kind = 'incident'{named} GROUP BY ALL
"""
_KNOWN = """
SELECT cluster, consumer, incident_id, epoch_ms(started_at), epoch_ms(ended_at) FROM {table}
WHERE epoch_ms(started_at) < $end AND (
  ended_at IS NULL OR epoch_ms(ended_at) >= $start OR incident_id IN (SELECT unnest($ids::VARCHAR[]))
){named}
"""
_DAY_MS = 86_400_000
_NEVER = datetime.max.replace(tzinfo=UTC)


def days_without_incidents(
    duck: Duck, runs_of: Table, days: Collection[date], words: str, asked: Mapping[str, object]
) -> set[date]:
    """The days on which ``verdict_runs`` has bad verdicts whose incident is missing in the table ``incidents``.

    For a verdict with an incident id, the table must have this id. For a verdict without an id, any incident of the
    group at most one day away is enough, because an incident may begin later than its first verdict.
    """
    if not days:
        return set()
    runs = duck.rows(runs_of.name, lambda day: day in days, _BAD.replace("{named}", words), asked)
    if not runs:
        return set()
    sought = {
        **asked,
        "start": min(row[4] for row in runs) - _DAY_MS,
        "end": max(row[5] for row in runs) + _DAY_MS,
        "ids": sorted({row[3] for row in runs if row[3] is not None}),
    }
    rows = duck.rows("incidents", lambda _day: True, _KNOWN.replace("{named}", words), sought)
    ids = {tuple(row[:3]) for row in rows}
    spans: dict[GroupKey, list[tuple[int, int | None]]] = {}
    for cluster, group, _, started, ended in rows:
        spans.setdefault(GroupKey(cluster, group), []).append((started, ended))

    def is_known(cluster: str, group: str, incident_id: str | None, first_ms: int, last_ms: int) -> bool:
        if incident_id is not None:
            return (cluster, group, incident_id) in ids
        return any(
            started <= last_ms + _DAY_MS and (ended is None or ended >= first_ms - _DAY_MS)
            for started, ended in spans.get(GroupKey(cluster, group), ())
        )

    lacking = (runs_of.day_of(file) for file, *run in runs if not is_known(*run))
    return {day for day in lacking if day is not None}


class IncidentOrder(StrEnum):
    """The orders in which incidents are listed."""

    NEWEST = "newest"
    OLDEST = "oldest"
    PEAK_LAG = "peak_lag"
    LONGEST = "longest"


def incident_of(row: Row) -> Incident:
    """Make the incident of a row of `INCIDENTS`."""
    incident_id, cluster, group, started, ended, ended_by, worst, peak, events, topics = row
    end = None if ended is None else moment_of(ended)
    return Incident(
        incident_id, cluster, group, moment_of(started), end, ended_by, worst, peak, events, tuple(topics or ())
    )


def incidents_in_order(incidents: Iterable[Incident], order: IncidentOrder) -> list[Incident]:
    """Sort the incidents in this order."""
    return sorted(incidents, key=_KEYS[order])


_KEYS = {
    IncidentOrder.NEWEST: lambda each: (EPOCH - each.started_at, each.cluster, each.group),
    IncidentOrder.OLDEST: lambda each: (each.started_at, each.cluster, each.group),
    IncidentOrder.PEAK_LAG: lambda each: (-(each.peak_lag or 0), each.started_at),
    IncidentOrder.LONGEST: lambda each: (each.started_at - (each.ended_at or _NEVER), each.started_at),
}
