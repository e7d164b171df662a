"""The questions: which groups there were, how a metric of one went, what incidents there were, where a group stood."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Self

from karrot.event import Status
from karrot.history.answers import (
    GroupDescription,
    GroupHistory,
    Incident,
    Risk,
    StaleGroups,
    TimeSeries,
)
from karrot.history.describe import describe
from karrot.history.duck import Duck, Row
from karrot.history.errors import UnclearGroup
from karrot.history.files import Table, require_tables
from karrot.history.metrics import METRICS, Metric, severity
from karrot.history.names import named
from karrot.history.records import LookBack, any_commit
from karrot.history.risks import Bounds, risks
from karrot.history.series import Told, points
from karrot.history.spans import EPOCH, MINUTE, Span, epoch_ms, moment_of
from karrot.history.stale import stale

__all__ = ["GroupOrder", "History", "IncidentOrder"]

_MS = timedelta(milliseconds=1)
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)


class GroupOrder(StrEnum):
    """Which group comes first."""

    NAME = "name"
    LAG = "lag"
    LAG_MAX = "lag_max"
    NOT_OK = "not_ok"
    INCIDENTS = "incidents"


class IncidentOrder(StrEnum):
    """Which incident comes first."""

    NEWEST = "newest"
    OLDEST = "oldest"
    PEAK_LAG = "peak_lag"
    LONGEST = "longest"


class History:
    """The tables below a directory, for any number of threads. Whoever asks gets frozen answers.

    An answer shows each table as it was at one moment, also while ``karrot pipeline derive`` replaces days of it. Every
    question raises a `HistoryError` with a sentence if it cannot be answered; that there is nothing is an answer.
    """

    def __init__(self, tables: Path, *, threads: int = 2, memory: str = "512MB") -> None:
        self._tables = tables
        self._duck = Duck(tables, threads=threads, memory=memory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of DuckDB's threads and memory."""
        self._duck.close()

    def days(self, table: str = "lag_minute") -> tuple[date, ...]:
        """The days (UTC) that a table has, in order."""
        return tuple(Table(self._tables, table).days())

    def groups(
        self,
        span: Span,
        *,
        cluster: str | None = None,
        group: str | None = None,
        order: GroupOrder = GroupOrder.NAME,
        limit: int | None = None,
    ) -> tuple[GroupHistory, ...]:
        """The groups of which something was said in the span."""
        words, asked = named(cluster, group)
        found = self._rows("lag_minute", span, _GROUPS.replace("{named}", words), asked | _bounds(span))
        counted = self._rows("incidents", span, _INCIDENTS_OF.replace("{named}", words), asked | _bounds(span))
        incidents = {(row[0], row[1]): row[2] for row in counted}
        groups = (_group(row, incidents.get((row[0], row[1]), 0)) for row in found)
        return tuple(sorted(groups, key=_GROUP_KEYS[order])[:limit])

    def timeseries(
        self,
        group: str,
        span: Span,
        *,
        cluster: str | None = None,
        metrics: Sequence[str] = ("lag",),
        granularity: timedelta = MINUTE,
        parts: Mapping[str, str | int] | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> TimeSeries:
        """Metrics of one group in steps of ``granularity``, which begin at multiples of it since 1970 (UTC).

        The first step is the whole one that the span begins in. ``parts`` narrows metrics of parts to a topic or
        partition. Raises `ValueError` for a metric that is not known or cannot be narrowed, `UnclearGroup` where
        several clusters have the group and none was named.
        """
        wanted = [_metric(name, parts or {}) for name in metrics]
        step_ms = granularity // _MS
        first_ms = epoch_ms(span.start) // step_ms * step_ms
        whole = Span(moment_of(first_ms), span.end)
        words, asked = named(cluster, group, parts or {})
        asked |= {**_bounds(whole), "step": step_ms}
        told: list[Told] = []
        for table, of_table in groupby(sorted(wanted, key=lambda each: each.table), key=lambda each: each.table):
            listed = list(of_table)
            edges = f", {_EDGES}" if "partition" in listed[0].parts else ""
            query = _STEPS.replace("{values}", ", ".join(each.value for each in listed))
            query = query.replace("{edges}", edges).replace("{named}", words)
            told.append(Told(tuple(each.name for each in listed), self._rows(table, whole, query, asked)))
        where = _only_cluster({row[0] for each in told for row in each.rows}, group) or cluster
        found = points(told, metrics, newest_first=newest_first, limit=limit)
        return TimeSeries(where, group, tuple(metrics), granularity, found)

    def incidents(
        self,
        span: Span,
        *,
        cluster: str | None = None,
        group: str | None = None,
        order: IncidentOrder = IncidentOrder.NEWEST,
        limit: int | None = None,
    ) -> tuple[Incident, ...]:
        """The incidents that lasted in the span, or in a part of it."""
        words, asked = named(cluster, group)
        found = self._rows("incidents", span, _INCIDENTS.replace("{named}", words), asked | _bounds(span))
        return tuple(sorted(map(_incident, found), key=_INCIDENT_KEYS[order])[:limit])

    def describe(
        self, group: str, at: datetime, *, cluster: str | None = None, look_back: timedelta = _WEEK
    ) -> GroupDescription | None:
        """A group's offsets, lags and owners as of a moment; ``None`` if nothing is known of it.

        By the records of ``__consumer_offsets``; of a group without any, by the events of resync and of watch.
        What was written more than ``look_back`` before is not looked for. Raises `UnclearGroup` where several clusters
        have the group and none was named.
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
        """The partitions whose committed offset stood still for ``length`` while there was something to read."""
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
    ) -> tuple[Risk, ...]:
        """The committed offsets that are lost, or will be ``within`` a time.

        ``retention`` is Kafka's ``offsets.retention.minutes``; unless told otherwise it is looked back for as long,
        and a day.
        """
        self._start("commits")
        back = LookBack(at, retention + _DAY if look_back is None else look_back)
        return risks(self._duck, back, Bounds(within, retention), cluster=cluster, group=group)

    def has_commits(
        self, at: datetime, *, cluster: str | None = None, group: str | None = None, look_back: timedelta = _WEEK
    ) -> bool:
        """Whether Kafka's own offsets say anything of these groups, so that "none is stale" tells something."""
        self._start("commits")
        return any_commit(self._duck, LookBack(at, look_back), cluster=cluster, group=group)

    def knows(self, *, cluster: str | None = None, group: str | None = None) -> bool:
        """Whether any table has them, on any day; that nobody was named is known."""
        words, asked = named(cluster, group)
        query = _KNOWN.replace("{named}", words)
        return not asked or any(self._duck.rows(table, lambda _day: True, query, asked) for table in _NAMING)

    def _start(self, first: str, other: str | None = None) -> None:
        self._duck.start()
        if other is None or not self.days(other):
            require_tables(self._tables, first)

    def _rows(self, table: str, span: Span, query: str, asked: Mapping[str, object]) -> list[Row]:
        self._start(_FIRST.get(table, "lag_minute"))
        # An incident lies in the day on which it started, however long it lasts.
        first = date.min if table == "incidents" else span.first_day
        return self._duck.rows(table, lambda day: first <= day <= span.last_day, query, asked)


_NAMING = ("incidents", "lag_minute", "events", "commits", "members")
"""The tables that name each group, those first that are read fastest."""
_KNOWN = "SELECT 1 FROM {table} WHERE true{named} LIMIT 1"
_FIRST = dict.fromkeys(("offsets_minute", "partition_lag_minute"), "offsets_minute")
_IN_SPAN = "epoch_ms(minute) >= $start AND epoch_ms(minute) < $end"
_OVERLAPS = "epoch_ms(started_at) < $end AND (ended_at IS NULL OR epoch_ms(ended_at) >= $start)"

_GROUPS = f"""
SELECT cluster, consumer, epoch_ms(min(minute)), epoch_ms(max(minute)), arg_max(severity, minute), max(severity),
  arg_max(lag_last, minute), max(lag_max), max(lag_seconds_max), count(*), count(*) FILTER (not_ok > 0)
FROM (SELECT *, {severity("worst_status")} AS severity FROM {{table}} WHERE {_IN_SPAN}{{named}}) GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)
"""Numbers of statuses, since texts cost half as much again; what is NULL is not the newest of anything."""

_STEP = "epoch_ms(minute) // $step * $step"

_STEPS = f"""
SELECT cluster, began, {{values}}
FROM (SELECT *, {_STEP} AS began{{edges}} FROM {{table}} WHERE {_IN_SPAN}{{named}}) GROUP BY ALL
"""  # noqa: S608 (as above)

_EDGES = ", ".join(
    f"minute = {pick}(minute) OVER (PARTITION BY cluster, topic, partition, {_STEP}) AS {name}"
    for name, pick in (("oldest", "min"), ("newest", "max"))
)

_INCIDENTS = f"""
SELECT incident_id, cluster, consumer, epoch_ms(started_at), epoch_ms(ended_at), ended_by, worst_status, peak_lag,
  events, topics
FROM {{table}} WHERE {_OVERLAPS}{{named}}
"""  # noqa: S608 (as above)

_INCIDENTS_OF = f"""
SELECT cluster, consumer, count(*) FROM {{table}} WHERE {_OVERLAPS}{{named}} GROUP BY ALL
"""  # noqa: S608 (as above)


def _bounds(span: Span) -> dict[str, object]:
    return {"start": epoch_ms(span.start), "end": epoch_ms(span.end)}


def _metric(name: str, parts: Mapping[str, object]) -> Metric:
    metric = METRICS.get(name)
    if metric is None:
        raise ValueError(f"there is no metric {name!r}: {', '.join(METRICS)}")
    if unknown := [part for part in parts if part not in metric.parts]:
        raise ValueError(f"{name} is of the whole group and not of a {unknown[0]}")
    return metric


def _only_cluster(clusters: set[str], group: str) -> str | None:
    if len(clusters) > 1:
        raise UnclearGroup(f"{group!r} is in {', '.join(sorted(clusters))}")
    return next(iter(clusters), None)


def _group(row: Row, incidents: int) -> GroupHistory:
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
        incidents,
    )


def _status(severity: int | None) -> str | None:
    return None if severity is None else Status(severity).name


def _incident(row: Row) -> Incident:
    incident_id, cluster, group, started, ended, ended_by, worst, peak, events, topics = row
    end = None if ended is None else moment_of(ended)
    return Incident(
        incident_id, cluster, group, moment_of(started), end, ended_by, worst, peak, events, tuple(topics or ())
    )


def _length(incident: Incident) -> timedelta:
    return (incident.ended_at or datetime.max.replace(tzinfo=UTC)) - incident.started_at


_GROUP_KEYS = {
    GroupOrder.NAME: lambda each: (each.cluster, each.group),
    GroupOrder.LAG: lambda each: (-(each.lag or 0), each.cluster, each.group),
    GroupOrder.LAG_MAX: lambda each: (-(each.lag_max or 0), each.cluster, each.group),
    GroupOrder.NOT_OK: lambda each: (-each.minutes_not_ok, each.cluster, each.group),
    GroupOrder.INCIDENTS: lambda each: (-each.incidents, each.cluster, each.group),
}
_INCIDENT_KEYS = {
    IncidentOrder.NEWEST: lambda each: (EPOCH - each.started_at, each.cluster, each.group),
    IncidentOrder.OLDEST: lambda each: (each.started_at, each.cluster, each.group),
    IncidentOrder.PEAK_LAG: lambda each: (-(each.peak_lag or 0), each.started_at),
    IncidentOrder.LONGEST: lambda each: (-_length(each), each.started_at),
}
