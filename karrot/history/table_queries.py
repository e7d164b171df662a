"""Answers every query about the tables, with the methods of `History`."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import Self

from karrot.event import DayRange, GroupKey, Incident, Status, TimeRange
from karrot.history.duckdb_reader import Duck, Row, Table, named, require_tables
from karrot.history.held_days import Days, asked_days, finished
from karrot.history.moments import IN_SPAN, MINUTE, bounds, epoch_ms, moment_of
from karrot.history.offsets_at_moment import LookBack, describe, last_commit, stale
from karrot.history.results import (
    GroupDescription,
    GroupHistory,
    HistoryHour,
    HourlyHistory,
    Risks,
    StaleGroups,
    TimeSeries,
    UnclearGroup,
)
from karrot.history.risks import Bounds, risks
from karrot.history.stored_tables import StoredTables, TablesInFolder, time_limit
from karrot.history.time_series import METRICS, SeriesMetric, TableSeries, points, question, severity
from karrot.settings.types import Bucket, Place
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
_KNOWN_INCIDENTS = """
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
    rows = duck.rows("incidents", lambda _day: True, _KNOWN_INCIDENTS.replace("{named}", words), sought)
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
    incident_id, cluster, group, started, ended, ended_by, worst, peak, events, topics = row
    end = None if ended is None else moment_of(ended)
    return Incident(
        incident_id, cluster, group, moment_of(started), end, ended_by, worst, peak, events, tuple(topics or ())
    )


def incidents_in_order(incidents: Iterable[Incident], order: IncidentOrder) -> list[Incident]:
    return sorted(incidents, key=_INCIDENT_KEYS[order])


_INCIDENT_KEYS = {
    IncidentOrder.NEWEST: lambda each: (EPOCH - each.started_at, each.cluster, each.group),
    IncidentOrder.OLDEST: lambda each: (each.started_at, each.cluster, each.group),
    IncidentOrder.PEAK_LAG: lambda each: (-(each.peak_lag or 0), each.started_at),
    IncidentOrder.LONGEST: lambda each: (each.started_at - (each.ended_at or _NEVER), each.started_at),
}


class GroupOrder(StrEnum):
    """The orders in which groups are listed."""

    NAME = "name"
    LAG = "lag"
    LAG_MAX = "lag_max"
    NOT_OK = "not_ok"
    INCIDENTS = "incidents"


GROUPS = f"""
SELECT cluster, consumer, epoch_ms(min(minute)), epoch_ms(max(minute)), arg_max(severity, minute), max(severity),
  arg_max(lag_last, minute), max(lag_max), max(lag_seconds_max), count(*), count(*) FILTER (not_ok > 0)
FROM (SELECT *, {severity("worst_status")} AS severity FROM {{table}} WHERE {IN_SPAN}{{named}}) GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)
"""The query uses the numbers of statuses. With texts, it takes 1.5 times as long. ``arg_max`` ignores NULL."""


JUDGED = f"""
SELECT DISTINCT filename, cluster, consumer
FROM {{table_with_files}}
WHERE {IN_SPAN} AND worst_status IS NOT NULL{{named}}
"""  # noqa: S608 (constants; every value is bound)
"""The files with verdicts on each group."""


def group_of(row: Row, incidents: int, *, counts_all: bool) -> GroupHistory:
    """Make a group from a row of `GROUPS`. ``counts_all``: the incidents of all the group's days are known.

    If some are unknown, the group's ``incidents`` counts the known ones, or is ``None`` if no incident is known.
    """
    cluster, group, first, last, status, worst, lag, lag_max, lag_seconds, minutes, not_ok = row
    return GroupHistory(
        cluster,
        group,
        moment_of(first),
        moment_of(last),
        _status(status),
        _status(worst),
        lag,
        lag_max,
        lag_seconds,
        minutes,
        not_ok,
        incidents if incidents or (counts_all and worst is not None) else None,
    )


def groups_in_order(groups: Iterable[GroupHistory], order: GroupOrder) -> list[GroupHistory]:
    """Sort the groups in this order. Groups that are equal in this order are sorted by name."""
    return sorted(groups, key=_KEYS[order])


def _status(severity: int | None) -> str | None:
    return None if severity is None else Status(severity).name


_KEYS = {
    GroupOrder.NAME: lambda each: (each.cluster, each.group),
    GroupOrder.LAG: lambda each: (-(each.lag or 0), each.cluster, each.group),
    GroupOrder.LAG_MAX: lambda each: (-(each.lag_max or 0), each.cluster, each.group),
    GroupOrder.NOT_OK: lambda each: (-each.minutes_not_ok, each.cluster, each.group),
    GroupOrder.INCIDENTS: lambda each: (-(each.incidents or 0), each.cluster, each.group),
}


_GIB = 1 << 30
_MS = timedelta(milliseconds=1)
_HOUR, _DAY, _WEEK = timedelta(hours=1), timedelta(days=1), timedelta(days=7)


class History:
    """Queries the tables in a folder or in S3, from any number of threads. Answers are immutable.

    An answer shows each table as it was at one moment, even while ``karrot pipeline derive`` replaces days of the
    table. A method that cannot answer raises a `HistoryError` for the user. An empty answer is not an error.

    ``memory`` limits DuckDB's memory. ``most_copied`` limits the bytes of files that are copied from S3, for all
    queries together.
    """

    def __init__(self, tables: Place, *, threads: int = 2, memory: str = "512MB", most_copied: int = 4 * _GIB) -> None:
        self._tables = _stored(tables, most_copied)
        self._duck = Duck(self._tables, threads=threads, memory=memory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release DuckDB's threads and memory, and remove the copies of files in S3."""
        self._duck.close()
        self._tables.close()

    @staticmethod
    def limited(seconds: float) -> AbstractContextManager[None]:
        """Limit the time of all queries of this thread in a ``with`` block together. They raise `TooSlow`."""
        return time_limit(seconds)

    def days(
        self,
        table: str = "lag_minute",
        span: TimeRange | None = None,
        *,
        cluster: str | None = None,
        group: str | None = None,
    ) -> tuple[date, ...]:
        """The days (UTC) that a table holds, in order. With a cluster or a group: the days on which it has rows.

        A day without incidents has no file in the table ``incidents``. So this table holds a day if the day has
        verdicts, ``karrot pipeline derive`` has finished the day, and the table has all incidents of the day.
        """
        if table == "incidents":
            judged = self._judged(span, cluster, group)
            return tuple(sorted(judged - self._lacking(judged, cluster, group)))
        place, (words, asked) = Table(self._tables, table), named(cluster, group)
        there = place.days(lambda day: _is_in(span, day))
        return tuple(sorted(self._naming(place, there, words, asked))) if asked else there

    def lacking(
        self, span: TimeRange | None = None, *, cluster: str | None = None, group: str | None = None
    ) -> tuple[date, ...]:
        """The finished days whose verdicts have an incident that ``incidents`` lacks, as after a lost table."""
        return tuple(sorted(self._lacking(self._judged(span, cluster, group), cluster, group)))

    def held(self, span: TimeRange, *tables: str, cluster: str | None = None, group: str | None = None) -> Days:
        """The days of the time range that at least one of the tables holds (see `days`), and the other days."""
        held = (self.days(table, span, cluster=cluster, group=group) for table in dict.fromkeys(tables))
        return asked_days(span, set().union(*held))

    def newest_verdict(self, day: date, *, cluster: str | None = None, group: str | None = None) -> datetime | None:
        """The time of the newest verdict on a day (UTC); ``None`` if the day has none."""
        words, asked = named(cluster, group)
        rows = self._duck.rows("verdict_runs", lambda each: each == day, _NEWEST.replace("{named}", words), asked)
        return next((moment_of(newest) for (newest,) in rows if newest is not None), None)

    def groups(
        self,
        span: TimeRange,
        *,
        cluster: str | None = None,
        group: str | None = None,
        order: GroupOrder = GroupOrder.NAME,
        limit: int | None = None,
    ) -> tuple[GroupHistory, ...]:
        words, asked = named(cluster, group)
        found = self._rows("lag_minute", span, GROUPS.replace("{named}", words), asked | bounds(span))
        # Query this first. If derive finishes a day between both queries, its incidents count as unknown and not as 0.
        uncounted = set().union(*self._uncounted(span, cluster, group).values())
        counted = self._rows("incidents", span, COUNTS.replace("{named}", words), asked | bounds(span))
        incidents = {GroupKey(row[0], row[1]): row[2] for row in counted}
        keyed = ((GroupKey(row[0], row[1]), row) for row in found)
        groups = (group_of(row, incidents.get(key, 0), counts_all=key not in uncounted) for key, row in keyed)
        return tuple(groups_in_order(groups, order)[:limit])

    def uncounted(self, span: TimeRange, *, cluster: str | None = None, group: str | None = None) -> tuple[date, ...]:
        return tuple(sorted(self._uncounted(span, cluster, group)))

    def timeseries(
        self,
        group: str,
        span: TimeRange,
        *,
        cluster: str | None = None,
        metrics: Sequence[str] = ("lag",),
        granularity: timedelta = MINUTE,
        parts: Mapping[str, str | int] | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> TimeSeries:
        """Metrics of one group in steps of ``granularity``, which begin at its multiples since 1970 (UTC).

        The first step is whole, even if the time range begins within this step. ``parts`` limits the metrics to a topic
        or a partition. Raises `ValueError` if a metric is unknown or cannot be limited in this way. Raises
        `UnclearGroup` if several clusters have the group and ``cluster`` is ``None``.
        """
        wanted = [_metric(name, parts or {}) for name in metrics]
        step_ms = granularity // _MS
        first_ms = epoch_ms(span.start) // step_ms * step_ms
        whole = TimeRange(moment_of(first_ms), span.end)
        words, asked = named(cluster, group, parts or {})
        asked |= {**bounds(whole), "step": step_ms}
        found: list[TableSeries] = []
        for table, of_table in groupby(sorted(wanted, key=lambda each: each.table), key=lambda each: each.table):
            listed = list(of_table)
            rows = self._rows(table, whole, question(listed, words), asked)
            found.append(TableSeries(tuple(each.name for each in listed), rows))
        clusters = {row[0] for each in found for row in each.rows}
        if len(clusters) > 1:
            raise UnclearGroup(f"{group!r} is in the clusters {', '.join(sorted(clusters))}")
        where = next(iter(clusters), None) or cluster
        steps = points(found, metrics, newest_first=newest_first, limit=limit)
        return TimeSeries(where, group, tuple(metrics), granularity, steps)

    def incidents(
        self,
        span: TimeRange,
        *,
        cluster: str | None = None,
        group: str | None = None,
        order: IncidentOrder = IncidentOrder.NEWEST,
        limit: int | None = None,
    ) -> tuple[Incident, ...]:
        words, asked = named(cluster, group)
        found = self._rows("incidents", span, INCIDENTS.replace("{named}", words), asked | bounds(span))
        return tuple(incidents_in_order(map(incident_of, found), order)[:limit])

    def hourly(self, cluster: str, group: str, *, until: datetime, days: int = 30) -> HourlyHistory:
        """One group's hours over the last ``days``, and its incidents in this time."""
        span = TimeRange(until - days * _DAY, until)
        metrics = ("lag_max", "lag_seconds", "status")
        series = self.timeseries(group, span, cluster=cluster, metrics=metrics, granularity=_HOUR)
        hours = tuple(HistoryHour(point.at, *point.values) for point in series.points)
        # Query this first. If derive finishes a day between both queries, the day counts as missing.
        missing = self.held(span, "incidents", cluster=cluster, group=group).missing
        incidents = self.incidents(span, cluster=cluster, group=group)
        return HourlyHistory(span.start, span.end, hours, incidents, missing)

    def describe(
        self, group: str, at: datetime, *, cluster: str | None = None, look_back: timedelta = _WEEK
    ) -> GroupDescription | None:
        """A group's offsets, lags and owners at a moment; ``None`` if the tables have no data of the group.

        The values come from the records of ``__consumer_offsets``. For a group without such records, they come from
        events of resync and watch. Records that are more than ``look_back`` older than the moment are not read. Raises
        `UnclearGroup` if several clusters have the group and ``cluster`` is ``None``.
        """
        self._start("commits", "partitions")
        return describe(self._duck, LookBack(at, look_back), group, cluster)

    def stale(
        self,
        at: datetime,
        length: timedelta,
        *,
        cluster: str | None = None,
        group: str | None = None,
        look_back: timedelta = _WEEK,
    ) -> StaleGroups:
        """The partitions with unread messages whose committed offset did not move for ``length``."""
        self._start("commits")
        return stale(self._duck, LookBack(at, look_back + length), length, cluster=cluster, group=group)

    def risks(
        self,
        at: datetime,
        *,
        within: timedelta = _DAY,
        retention: timedelta = _WEEK,
        cluster: str | None = None,
        group: str | None = None,
        look_back: timedelta | None = None,
    ) -> Risks:
        """The offsets that are or will be lost. ``retention`` is Kafka's. ``look_back`` is a day more by default."""
        self._start("commits")
        back = LookBack(at, retention + _DAY if look_back is None else look_back)
        has_members = bool(Table(self._tables, "members").days(back.has))
        return risks(self._duck, back, Bounds(within, retention), has_members=has_members, cluster=cluster, group=group)

    def last_commit(
        self, at: datetime, *, cluster: str | None = None, group: str | None = None, look_back: timedelta = _WEEK
    ) -> datetime | None:
        """The time of these groups' newest commit. Without a commit, "no partition is stale" says nothing."""
        self._start("commits")
        return last_commit(self._duck, LookBack(at, look_back), cluster=cluster, group=group)

    def knows(self, *, cluster: str | None = None, group: str | None = None) -> bool:
        """Whether any table has this cluster or group, on any day; true if neither is given."""
        words, asked = named(cluster, group)
        query = _KNOWN.replace("{named}", words)
        return not asked or any(self._duck.rows(table, lambda _day: True, query, asked) for table in _NAMING)

    def _uncounted(self, span: TimeRange, cluster: str | None, group: str | None) -> dict[date, set[GroupKey]]:
        """The groups with verdicts, for each day whose incidents are unknown."""
        known, place = self.days("incidents", span, cluster=cluster, group=group), Table(self._tables, "lag_minute")
        days = place.days(lambda day: _is_in(span, day) and day not in known)
        words, asked = named(cluster, group)
        query = JUDGED.replace("{named}", words)
        rows = self._duck.rows(place.name, lambda day: day in days, query, asked | bounds(span)) if days else []
        groups: dict[date, set[GroupKey]] = {}
        for file, where, consumer in rows:
            if (day := place.day_of(file)) is not None:
                groups.setdefault(day, set()).add(GroupKey(where, consumer))
        return groups

    def _judged(self, span: TimeRange | None, cluster: str | None, group: str | None) -> set[date]:
        """The days of the group or cluster that have verdicts and that ``derive`` has finished."""
        done, place = finished(self._tables.note()), Table(self._tables, "verdict_runs")
        there = place.days(lambda day: day in done and _is_in(span, day))
        return self._naming(place, there, *named(cluster, group))

    def _lacking(self, judged: Collection[date], cluster: str | None, group: str | None) -> set[date]:
        place = Table(self._tables, "verdict_runs")
        return days_without_incidents(self._duck, place, judged, *named(cluster, group))

    def _naming(self, place: Table, days: Collection[date], words: str, asked: Mapping[str, object]) -> set[date]:
        if not days:
            return set()
        self._duck.start()
        rows = self._duck.rows(place.name, lambda day: day in days, _FILES.replace("{named}", words), asked)
        return {day for (file,) in rows if (day := place.day_of(file)) is not None}

    def _start(self, first: str, other: str | None = None) -> None:
        self._duck.start()
        if other is None or not self.days(other):
            require_tables(self._tables, first)

    def _rows(self, table: str, span: TimeRange, query: str, asked: Mapping[str, object]) -> list[Row]:
        self._start(_FIRST.get(table, "lag_minute"))
        # An incident is on the day on which it started, even if it lasts longer.
        days = DayRange(date.min, span.days.last) if table == "incidents" else span.days
        return self._duck.rows(table, days.has, query, asked)


_NAMING = ("incidents", "lag_minute", "events", "commits", "members")
"""Together, these tables have every group. The tables that answer fastest come first."""
_FILES = """
SELECT DISTINCT filename
FROM {table_with_files} WHERE true{named}
"""
_NEWEST = "SELECT max(epoch_ms(last_at)) FROM {table} WHERE true{named}"
_KNOWN = "SELECT 1 FROM {table} WHERE true{named} LIMIT 1"
_FIRST = dict.fromkeys(("offsets_minute", "partition_lag_minute"), "offsets_minute")


def _stored(tables: Place, most_copied: int) -> StoredTables:
    if not isinstance(tables, Bucket):
        return TablesInFolder(tables)
    from karrot.history.tables_in_s3 import TablesInS3  # noqa: PLC0415 (only for tables in S3)
    from karrot.reporters.archive.s3 import open_client  # noqa: PLC0415 (as above)

    return TablesInS3(tables, partial(open_client, os.environ), most_bytes=most_copied)


def _is_in(span: TimeRange | None, day: date) -> bool:
    return span is None or span.days.has(day)


def _metric(name: str, parts: Mapping[str, object]) -> SeriesMetric:
    metric = METRICS.get(name)
    if metric is None:
        raise ValueError(f"there is no metric {name!r}. The metrics are {', '.join(METRICS)}")
    if unknown := [part for part in parts if part not in metric.parts]:
        raise ValueError(f"{name} is a metric of the whole group: it cannot be limited to a {unknown[0]}")
    return metric
