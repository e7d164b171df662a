"""Defines `History`, which answers every query about the tables with DuckDB's SQL."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack

from karrot.event import GroupKey, Status
from karrot.history.answers_and_errors import (
    GroupDescription,
    GroupHistory,
    HistoryError,
    HourlyHistory,
    Incident,
    Risks,
    SeriesPoint,
    StaleGroups,
    TimeSeries,
    UnclearGroup,
)
from karrot.history.days_with_data import Days, day_ranges, finished
from karrot.history.duckdb_reader import Duck, Names, Row
from karrot.history.offsets_at_time import LookBack, describe, stale
from karrot.history.retention_risks import risks
from karrot.history.table_files_in_folder import TablesInFolder, time_limit
from karrot.history.time_ranges import IN_SPAN, MINUTE, DayRange, TimeRange, bounds, epoch_ms, moment_of
from karrot.history.time_series import METRICS, SeriesMetric, question, severity
from karrot.settings.types import Bucket, Place
from karrot.text import EPOCH

if TYPE_CHECKING:
    from karrot.history.duckdb_reader import StoredTables

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

GROUPS = f"""
SELECT cluster, consumer, epoch_ms(min(minute)), epoch_ms(max(minute)), arg_max(severity, minute), max(severity),
  arg_max(lag_last, minute), max(lag_max), max(lag_seconds_max), count(*), count(*) FILTER (not_ok > 0)
FROM (SELECT *, {severity("worst_status")} AS severity FROM {{table}} WHERE {IN_SPAN}{{named}}) GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)
"""The query uses the numbers of statuses. With strings, the query takes 1.5 times as long. ``arg_max`` ignores NULL."""

JUDGED = f"""
SELECT DISTINCT filename, cluster, consumer
FROM {{table_with_files}}
WHERE {IN_SPAN} AND worst_status IS NOT NULL{{named}}
"""  # noqa: S608 (constants; every value is bound)
"""The files with verdicts on each group."""

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
_FILES = "SELECT DISTINCT filename FROM {table_with_files} WHERE true{named}"
_NEWEST = "SELECT max(epoch_ms(last_at)) FROM {table} WHERE true{named}"

_DERIVE = "karrot pipeline derive"
_MAKERS = {
    "commits": "karrot pipeline offsets",
    "offsets_minute": f"{_DERIVE} (after karrot pipeline offsets)",
    "lag_minute": _DERIVE,
}
_FIRST = dict.fromkeys(("offsets_minute", "partition_lag_minute"), "offsets_minute")
"""The table that an error calls missing, by the queried table; ``lag_minute`` for a table without an entry."""

_GIB: Final = 1 << 30
_DAY_MS: Final = 86_400_000
_MS, _HOUR, _DAY, _WEEK = timedelta(milliseconds=1), timedelta(hours=1), timedelta(days=1), timedelta(days=7)
_NEVER = datetime.max.replace(tzinfo=UTC)

INCIDENT_ORDERS: Mapping[str, Callable[[Incident], Any]] = {
    "newest": lambda each: (EPOCH - each.started_at, each.cluster, each.group),
    "oldest": lambda each: (each.started_at, each.cluster, each.group),
    "peak_lag": lambda each: (-(each.peak_lag or 0), each.started_at),
    "longest": lambda each: (each.started_at - (each.ended_at or _NEVER), each.started_at),
}
GROUP_ORDERS: Mapping[str, Callable[[GroupHistory], Any]] = {
    "name": lambda each: (each.cluster, each.group),
    "lag": lambda each: (-(each.lag or 0), each.cluster, each.group),
    "lag_max": lambda each: (-(each.lag_max or 0), each.cluster, each.group),
    "not_ok": lambda each: (-each.minutes_not_ok, each.cluster, each.group),
    "incidents": lambda each: (-(each.incidents or 0), each.cluster, each.group),
}


class GroupNames(TypedDict, total=False):
    """The cluster and the group of an answer. ``None`` stands for all clusters or groups."""

    cluster: str | None
    group: str | None


class History:
    """Queries the tables in a folder or in S3, from any number of threads. Answers are immutable.

    An answer shows each table as it was at one time, even while ``karrot pipeline derive`` replaces days of the
    table. A method that cannot answer raises a `HistoryError` for the user. An empty answer is not an error.

    ``memory`` limits DuckDB's memory. ``most_copied`` limits the bytes of files that are copied from S3, for all
    queries together. A search of older records ends ``look_back`` before the time ``at``.
    """

    def __init__(self, tables: Place, *, threads: int = 2, memory: str = "512MB", most_copied: int = 4 * _GIB) -> None:
        self._tables: StoredTables
        if isinstance(tables, Bucket):
            from karrot.history.table_files_in_s3 import TablesInS3  # noqa: PLC0415 (only for tables in S3)
            from karrot.reporters.archive.s3 import open_client  # noqa: PLC0415 (as above)

            self._tables = TablesInS3(tables, partial(open_client, os.environ), most_bytes=most_copied)
        else:
            self._tables = TablesInFolder(tables)
        self._duck = Duck(self._tables, threads=threads, memory=memory)

    limited = staticmethod(time_limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release DuckDB's threads and memory, and remove the copies of files in S3."""
        self._duck.close()
        self._tables.close()

    def days(
        self, table: str = "lag_minute", span: TimeRange | None = None, **of: Unpack[GroupNames]
    ) -> tuple[date, ...]:
        """The days (UTC) that a table holds, in order. With a cluster or a group: the days on which it has rows.

        A day without incidents has no file in the table ``incidents``. So this table holds a day if the day has
        verdicts, ``karrot pipeline derive`` has finished the day, and the table has all incidents of the day.
        """
        names = _names(of)
        if table == "incidents":
            judged = self._judged(span, names)
            return tuple(sorted(judged - self._lacking(judged, names)))
        there = self._tables.days(table, lambda day: _is_in(span, day))
        return tuple(sorted(self._naming(table, there, names))) if names else there

    def held(self, span: TimeRange, *tables: str, **of: Unpack[GroupNames]) -> Days:
        """The days of the time range that at least one of the tables holds (see `days`), and the other days."""
        held = {day for table in {*tables} for day in self.days(table, span, **of)}
        asked = span.days.dates
        return Days(
            tuple(day_ranges(day for day in asked if day in held)),
            tuple(day_ranges(day for day in asked if day not in held)),
        )

    def newest_verdict(self, day: date, **of: Unpack[GroupNames]) -> datetime | None:
        """The time of the newest verdict on a day (UTC); ``None`` if the day has none."""
        rows = self._duck.rows("verdict_runs", lambda each: each == day, _NEWEST, {}, _names(of))
        return next((moment_of(newest) for (newest,) in rows if newest is not None), None)

    def groups(self, span: TimeRange, *, order: str = "name", **of: Unpack[GroupNames]) -> tuple[GroupHistory, ...]:
        """The groups with data in the time range, in one of the `GROUP_ORDERS`."""
        names = _names(of)
        found = self._rows("lag_minute", span, GROUPS, names)
        # Query this first. If derive finishes a day between both queries, its incidents count as unknown and not as 0.
        uncounted = set().union(*self._uncounted(span, names).values())
        incidents = {
            (where, consumer): number for where, consumer, number in self._rows("incidents", span, COUNTS, names)
        }
        groups = []
        for where, consumer, first, last, status, worst, *lags_and_minutes in found:
            statuses = (None if each is None else Status(each).name for each in (status, worst))
            # An unknown number of incidents is None, unless some of them are known.
            is_counted = worst is not None and (where, consumer) not in uncounted
            number = incidents.get((where, consumer), 0 if is_counted else None)
            times = moment_of(first), moment_of(last)
            groups.append(GroupHistory._make((where, consumer, *times, *statuses, *lags_and_minutes, number)))
        return tuple(sorted(groups, key=GROUP_ORDERS[order]))

    def uncounted(self, span: TimeRange, **of: Unpack[GroupNames]) -> tuple[date, ...]:
        """The days on which groups have verdicts and their incidents are unknown."""
        return tuple(sorted(self._uncounted(span, _names(of))))

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
        wanted = [(number, _metric(name, parts or {})) for number, name in enumerate(metrics)]
        step_ms = granularity // _MS
        whole = TimeRange(moment_of(epoch_ms(span.start) // step_ms * step_ms), span.end)
        names = _names({"cluster": cluster, "group": group}, **(parts or {}))
        steps: dict[tuple[str, int], list[float | None]] = {}
        for table, of_table in groupby(sorted(wanted, key=lambda each: each[1].table), lambda each: each[1].table):
            numbers, listed = zip(*of_table, strict=True)
            for where, at, *values in self._rows(table, whole, question(listed), names, step=step_ms):
                step = steps.setdefault((where, at), [None] * len(wanted))
                for number, value in zip(numbers, values, strict=True):
                    step[number] = value
        clusters = sorted({where for where, _ in steps})
        if len(clusters) > 1:
            raise UnclearGroup(f"{group!r} is in the clusters {', '.join(clusters)}")
        ordered = sorted(steps.items(), reverse=newest_first)[:limit]
        points = tuple(SeriesPoint(moment_of(at), tuple(values)) for (_, at), values in ordered)
        return TimeSeries(next(iter(clusters), cluster), group, tuple(metrics), granularity, points)

    def incidents(self, span: TimeRange, *, order: str = "newest", **of: Unpack[GroupNames]) -> tuple[Incident, ...]:
        """The incidents that overlap the time range, in one of the `INCIDENT_ORDERS`."""
        found = []
        for id_, *key, start, end, by, worst, peak, events, topics in self._rows(
            "incidents", span, INCIDENTS, _names(of)
        ):
            times = moment_of(start), None if end is None else moment_of(end)
            found.append(Incident._make((id_, *key, *times, by, worst, peak, events, tuple(topics or ()))))
        return tuple(sorted(found, key=INCIDENT_ORDERS[order]))

    def hourly(self, cluster: str, group: str, *, until: datetime, days: int = 30) -> HourlyHistory:
        """One group's hours over the last ``days``, and its incidents in this time."""
        span = TimeRange(until - days * _DAY, until)
        metrics = ("lag_max", "lag_seconds", "status")
        hours = self.timeseries(group, span, cluster=cluster, metrics=metrics, granularity=_HOUR).points
        # Query this first. If derive finishes a day between both queries, the day counts as missing.
        missing = self.held(span, "incidents", cluster=cluster, group=group).missing
        return HourlyHistory(span.start, span.end, hours, self.incidents(span, cluster=cluster, group=group), missing)

    def describe(
        self, group: str, at: datetime, *, cluster: str | None = None, look_back: timedelta = _WEEK
    ) -> GroupDescription | None:
        """A group's offsets, lags and owners at one time; ``None`` if the tables have no data of the group.

        The values come from the records of ``__consumer_offsets``. For a group without such records, they come from
        events of resync and watch. Raises `UnclearGroup` if several clusters have the group and ``cluster`` is
        ``None``.
        """
        self._start("commits", "partitions")
        return describe(LookBack(self._duck, at, look_back, _names({"cluster": cluster, "group": group})), group)

    def stale(
        self, at: datetime, length: timedelta, *, look_back: timedelta = _WEEK, **of: Unpack[GroupNames]
    ) -> StaleGroups:
        """The partitions with unread messages whose committed offset did not move for ``length``."""
        self._start("commits")
        return stale(LookBack(self._duck, at, look_back + length, _names(of)), length)

    def risks(
        self,
        at: datetime,
        *,
        within: timedelta = _DAY,
        retention: timedelta = _WEEK,
        look_back: timedelta | None = None,
        **of: Unpack[GroupNames],
    ) -> Risks:
        """The offsets that are or will be lost. By default, ``look_back`` is a day more than Kafka's ``retention``."""
        self._start("commits")
        back = LookBack(self._duck, at, look_back or retention + _DAY, _names(of))
        return risks(back, within, retention, has_members=bool(self._tables.days("members", back.has)))

    def _uncounted(self, span: TimeRange, names: Names) -> dict[date, set[GroupKey]]:
        """The groups with verdicts, for each day whose incidents are unknown."""
        judged = self._judged(span, names)
        known = judged - self._lacking(judged, names)
        days = self._tables.days("lag_minute", lambda day: _is_in(span, day) and day not in known)
        rows = self._duck.rows("lag_minute", lambda day: day in days, JUDGED, bounds(span), names) if days else []
        groups: dict[date, set[GroupKey]] = {}
        for day, where, consumer in rows:
            groups.setdefault(day, set()).add(GroupKey(where, consumer))
        return groups

    def _judged(self, span: TimeRange | None, names: Names) -> set[date]:
        """The days of the group or cluster that have verdicts and that ``derive`` has finished."""
        done = finished(self._tables.note())
        there = self._tables.days("verdict_runs", lambda day: day in done and _is_in(span, day))
        return self._naming("verdict_runs", there, names)

    def _lacking(self, days: Collection[date], names: Names) -> set[date]:
        """The days on which ``verdict_runs`` has bad verdicts whose incident is missing in the table ``incidents``.

        For a verdict with an incident id, the table must have this id. For a verdict without an id, any incident of the
        group at most one day away is enough, because an incident may begin later than its first verdict.
        """
        runs = self._duck.rows("verdict_runs", lambda day: day in days, _BAD, {}, names) if days else []
        if not runs:
            return set()
        sought = {
            "start": min(row[4] for row in runs) - _DAY_MS,
            "end": max(row[5] for row in runs) + _DAY_MS,
            "ids": sorted({row[3] for row in runs if row[3] is not None}),
        }
        ids = set()
        spans: dict[tuple[str, str], list[tuple[int, int | None]]] = {}
        for where, consumer, id_, started, ended in self._duck.rows(
            "incidents", _any_day, _KNOWN_INCIDENTS, sought, names
        ):
            ids.add((where, consumer, id_))
            spans.setdefault((where, consumer), []).append((started, ended))
        lacking = set()
        for day, where, consumer, id_, first_ms, last_ms in runs:
            is_near = any(
                started <= last_ms + _DAY_MS and (ended is None or ended >= first_ms - _DAY_MS)
                for started, ended in spans.get((where, consumer), ())
            )
            if not (is_near if id_ is None else (where, consumer, id_) in ids):
                lacking.add(day)
        return lacking

    def _naming(self, table: str, days: Collection[date], names: Names) -> set[date]:
        """The days on which the table has a row with these names."""
        if not days:
            return set()
        self._duck.start()
        return {day for (day,) in self._duck.rows(table, lambda day: day in days, _FILES, {}, names)}

    def _start(self, first: str, *others: str) -> None:
        """Start DuckDB. Raises `HistoryError` about the ``first`` table if none of the tables has data."""
        self._duck.start()
        if any(self._tables.days(table, _any_day) for table in (*others, first)):
            return
        tables, maker = self._tables, _MAKERS[first]
        if not tables.exists():
            source = "offsets" if first == "commits" else "ingest"
            raise HistoryError(
                f"{tables}: no such directory. Run karrot pipeline {source} and derive to make the tables"
            )
        if not tables.exists(first):
            raise HistoryError(f"{tables} has no table {first}: run {maker}")
        raise HistoryError(f"{tables}/{first} has no data in directories day=YYYY-MM-DD: run {maker} to make it again")

    def _rows(self, table: str, span: TimeRange, query: str, names: Names, **asked: object) -> list[Row]:
        self._start(_FIRST.get(table, "lag_minute"))
        # An incident is on the day on which it started, even if it lasts longer.
        days = DayRange(date.min, span.days.last) if table == "incidents" else span.days
        return self._duck.rows(table, days.has, query, bounds(span) | asked, names)


def _names(of: GroupNames, **parts: str | int) -> Names:
    names = {"cluster": of.get("cluster"), "consumer": of.get("group"), **parts}
    given = {column: name for column, name in names.items() if name is not None}
    for name in given.values():
        str(name).encode()  # raises for surrogates (invalid UTF-8 in a command): no name has them
    return given


def _any_day(_day: date) -> bool:
    return True


def _is_in(span: TimeRange | None, day: date) -> bool:
    return span is None or span.days.has(day)


def _metric(name: str, parts: Mapping[str, object]) -> SeriesMetric:
    metric = METRICS.get(name)
    if metric is None:
        raise ValueError(f"there is no metric {name!r}. The metrics are {', '.join(METRICS)}")
    if unknown := [part for part in parts if part not in metric.parts]:
        raise ValueError(f"{name} is a metric of the whole group: it cannot be limited to a {unknown[0]}")
    return metric
