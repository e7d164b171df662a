"""Defines `History`, which answers every query about the tables with DuckDB's SQL."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, date, datetime, timedelta
from functools import partial, wraps
from itertools import groupby
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypedDict, TypeVar, Unpack

from karrot.event import Status
from karrot.history.answers_and_errors import (
    INCIDENTS,
    OVERLAPS,
    Days,
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
    incident_of,
)
from karrot.history.duckdb_reader import Duck, Names, Row, TablesAtOneTime
from karrot.history.offsets_at_time import LookBack, describe, stale
from karrot.history.report_findings import Findings, findings
from karrot.history.retention_risks import risks
from karrot.history.table_files_in_folder import FileGone, TablesInFolder, time_limit
from karrot.history.time_ranges import IN_SPAN, MINUTE, DayRange, TimeRange, bounds, day_ranges, epoch_ms, moment_of
from karrot.history.time_series import METRICS, SeriesMetric, question, severity
from karrot.settings.types import Bucket, Place
from karrot.text import EPOCH

if TYPE_CHECKING:
    from karrot.history.duckdb_reader import StoredTables

COUNTS = f"""
SELECT cluster, consumer, count(*) FROM {{table}} WHERE {OVERLAPS}{{named}} GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)
"""The number of incidents of each group."""

GROUPS = f"""
SELECT cluster, consumer, epoch_ms(min(minute)), epoch_ms(max(minute)), arg_max(severity, minute), max(severity),
  arg_max(lag_last, minute), max(lag_max), max(lag_seconds_max), count(*), count(*) FILTER (not_ok > 0)
FROM (SELECT *, {severity("worst_status")} AS severity FROM {{table}} WHERE {IN_SPAN}{{named}}) GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)
"""The query uses the numbers of statuses. With strings, the query takes 1.5 times as long. ``arg_max`` ignores NULL."""

_NEWEST = "SELECT max(epoch_ms(last_at)) FROM {table} WHERE true{named}"

_DERIVE = "karrot pipeline run --once --only derive"
_MAKERS = {
    "commits": "karrot pipeline offsets",
    "partition_lag_minute": f"{_DERIVE} (after karrot pipeline offsets)",
    "lag_minute": _DERIVE,
}
_GIB: Final = 1 << 30
_ATTEMPTS: Final = 3
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


_P = ParamSpec("_P")
_T = TypeVar("_T")
_seen: ContextVar[TablesAtOneTime | None] = ContextVar(
    "the tables as the answer of this thread sees them", default=None
)


def _one_answer(method: "Callable[Concatenate[History, _P], _T]") -> "Callable[Concatenate[History, _P], _T]":
    """Let a method, with all methods that it calls, see the tables at one time.

    ``compact`` can delete a file of an old note while it is read. The answer is then made again.
    """

    @wraps(method)
    def answer(self: "History", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if _seen.get() is not None:
            return method(self, *args, **kwargs)
        gone = FileGone()
        for _ in range(_ATTEMPTS):
            token = _seen.set(self._at_one_time())
            try:
                return method(self, *args, **kwargs)
            except FileGone as error:
                gone = error
            finally:
                _seen.reset(token)
        raise HistoryError(f"{gone} is missing, but its table's log lists it: copy the file, or make the table again")

    return answer


class History:
    """Queries the tables in a folder or in S3, from any number of threads. Answers are immutable.

    An answer has the derived tables of one run of ``derive``, even while the next run writes. A method
    that cannot answer raises a `HistoryError` for the user. An empty answer is not an error.

    ``memory`` limits DuckDB's memory. An answer that needs more fails or, if it ``spills``, uses temporary files.
    ``most_copied`` limits the bytes of files that are copied from S3, for all queries together. A search of older
    records ends ``look_back`` before the time ``at``.
    """

    def __init__(
        self,
        tables: Place,
        *,
        threads: int = 2,
        memory: str = "512MB",
        spills: bool = False,
        most_copied: int = 4 * _GIB,
    ) -> None:
        self._stored: StoredTables
        if isinstance(tables, Bucket):
            from karrot.history.table_files_in_s3 import TablesInS3  # noqa: PLC0415 (only for tables in S3)
            from karrot.reporters.archive.s3 import open_client  # noqa: PLC0415 (as above)

            self._stored = TablesInS3(tables, partial(open_client, os.environ), most_bytes=most_copied)
        else:
            self._stored = TablesInFolder(tables)
        spill = f"{tempfile.gettempdir()}/karrot-duckdb-{os.getpid()}" if spills else ""
        self._duck = Duck(threads=threads, memory=memory, spill=spill)

    limited = staticmethod(time_limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release DuckDB's threads and memory, and remove the copies of files in S3."""
        self._duck.close()
        self._stored.close()

    def _at_one_time(self) -> TablesAtOneTime:
        try:
            import deltalake  # noqa: PLC0415, F401 (an extra)

            self._duck.start()
        except ModuleNotFoundError as error:
            raise HistoryError(
                f"The history needs {error.name}, which is not installed: pip install 'karrot-burrow[history]'."
            ) from error
        return TablesAtOneTime(self._stored, self._duck)

    @property
    def _tables(self) -> TablesAtOneTime:
        return _seen.get() or self._at_one_time()

    @_one_answer
    def days(
        self, table: str = "lag_minute", span: TimeRange | None = None, **of: Unpack[GroupNames]
    ) -> tuple[date, ...]:
        """The days (UTC) that a table holds, in order. With a cluster or a group: the days on which it has rows.

        A day without incidents has no file in the table ``incidents``. So this table holds a day if the day has
        verdicts, and if the tables are of one run of ``derive``.
        """
        if table == "incidents":
            table, has_all = "verdict_runs", self._tables.are_of_one_run
            return self.days(table, span, **of) if has_all else ()
        return self._tables.days(table, lambda day: span is None or span.days.has(day), _names(of))

    @_one_answer
    def held(self, span: TimeRange, *tables: str, **of: Unpack[GroupNames]) -> Days:
        """The days of the time range that at least one of the tables holds (see `days`), and the other days."""
        held = {day for table in {*tables} for day in self.days(table, span, **of)}
        asked = span.days.dates
        return Days(
            tuple(day_ranges(day for day in asked if day in held)),
            tuple(day_ranges(day for day in asked if day not in held)),
        )

    @_one_answer
    def newest_verdict(self, day: date, **of: Unpack[GroupNames]) -> datetime | None:
        """The time of the newest verdict on a day (UTC); ``None`` if the day has none."""
        rows = self._tables.rows("verdict_runs", lambda each: each == day, _NEWEST, {}, _names(of))
        return next((moment_of(newest) for (newest,) in rows if newest is not None), None)

    @_one_answer
    def groups(self, span: TimeRange, *, order: str = "name", **of: Unpack[GroupNames]) -> tuple[GroupHistory, ...]:
        """The groups with data in the time range, in one of the `GROUP_ORDERS`."""
        names = _names(of)
        found = self._rows("lag_minute", span, GROUPS, names)
        are_known = self._tables.are_of_one_run
        incidents = {
            (where, consumer): number for where, consumer, number in self._rows("incidents", span, COUNTS, names)
        }
        groups = []
        for where, consumer, first, last, status, worst, *lags_and_minutes in found:
            statuses = (None if each is None else Status(each).name for each in (status, worst))
            # A group without verdicts has no incidents, not zero incidents.
            number = incidents.get((where, consumer), None if worst is None else 0) if are_known else None
            times = moment_of(first), moment_of(last)
            groups.append(GroupHistory._make((where, consumer, *times, *statuses, *lags_and_minutes, number)))
        return tuple(sorted(groups, key=GROUP_ORDERS[order]))

    @_one_answer
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

        def place(each: tuple[int, SeriesMetric]) -> tuple[str, str]:
            return each[1].table, each[1].only

        for (table, _), same_rows in groupby(sorted(wanted, key=place), place):
            numbers, listed = zip(*same_rows, strict=True)
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

    @_one_answer
    def incidents(self, span: TimeRange, *, order: str = "newest", **of: Unpack[GroupNames]) -> tuple[Incident, ...]:
        """The incidents that overlap the time range, in one of the `INCIDENT_ORDERS`."""
        found = map(incident_of, self._rows("incidents", span, INCIDENTS, _names(of)))
        return tuple(sorted(found, key=INCIDENT_ORDERS[order]))

    @_one_answer
    def hourly(self, cluster: str, group: str, *, until: datetime, days: int = 30) -> HourlyHistory:
        """One group's hours over the last ``days``, and its incidents in this time."""
        span = TimeRange(until - days * _DAY, until)
        metrics = ("lag_max", "lag_seconds", "status")
        hours = self.timeseries(group, span, cluster=cluster, metrics=metrics, granularity=_HOUR).points
        missing = self.held(span, "incidents", cluster=cluster, group=group).missing
        return HourlyHistory(span.start, span.end, hours, self.incidents(span, cluster=cluster, group=group), missing)

    @_one_answer
    def describe(
        self, group: str, at: datetime, *, cluster: str | None = None, look_back: timedelta = _WEEK
    ) -> GroupDescription | None:
        """A group's offsets, lags and owners at one time; ``None`` if the tables have no data of the group.

        The values come from the records of ``__consumer_offsets``. For a group without such records, they come from
        events of resync and watch. Raises `UnclearGroup` if several clusters have the group and ``cluster`` is
        ``None``.
        """
        self._start("commits", "partitions")
        return describe(LookBack(self._tables, at, look_back, _names({"cluster": cluster, "group": group})), group)

    @_one_answer
    def stale(
        self, at: datetime, length: timedelta, *, look_back: timedelta = _WEEK, **of: Unpack[GroupNames]
    ) -> StaleGroups:
        """The partitions with unread messages whose committed offset did not move for ``length``."""
        back = LookBack(self._tables, at, look_back + length, _names(of))
        back.see_log_ends()  # or a log end could be newer than the commits, and a partition that moved would look stale
        self._start("commits")
        return stale(back, length)

    @_one_answer
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
        back = LookBack(self._tables, at, look_back or retention + _DAY, _names(of))
        return risks(back, within, retention, has_members=bool(self._tables.days("members", back.has)))

    @_one_answer
    def findings(self, first: date | None = None, last: date | None = None) -> Findings:
        """The data of a report about these days (UTC), by default the newest seven. Raises `NothingToReport`."""
        self._start("lag_minute")
        return findings(self._tables, first, last)

    def _start(self, first: str, *others: str) -> None:
        """Raise `HistoryError` about the ``first`` table if none of the tables has data."""
        if any(self._tables.days(table, _any_day) for table in (*others, first)):
            return
        maker = _MAKERS[first]
        if not self._stored.exists():
            raise HistoryError(f"{self._stored}: no such directory. karrot pipeline run makes the tables")
        if not self._stored.exists(f"{first}/"):
            raise HistoryError(f"{self._stored} has no table {first}: run {maker}")
        raise HistoryError(f"{self._stored}/{first} has no data: run {maker} to make it again")

    def _rows(self, table: str, span: TimeRange, query: str, names: Names, **asked: object) -> list[Row]:
        self._start(table if table in _MAKERS else "lag_minute")
        # An incident is on the day on which it started, even if it lasts longer.
        days = DayRange(date.min, span.days.last) if table == "incidents" else span.days
        return self._tables.rows(table, days.has, query, bounds(span) | asked, names)


def _names(of: GroupNames, **parts: str | int) -> Names:
    names = {"cluster": of.get("cluster"), "consumer": of.get("group"), **parts}
    given = {column: name for column, name in names.items() if name is not None}
    for name in given.values():
        str(name).encode()  # raises for surrogates (invalid UTF-8 in a command): no name has them
    return given


def _any_day(_day: date) -> bool:
    return True


def _metric(name: str, parts: Mapping[str, object]) -> SeriesMetric:
    metric = METRICS.get(name)
    if metric is None:
        raise ValueError(f"there is no metric {name!r}. The metrics are {', '.join(METRICS)}")
    if unknown := [part for part in parts if part not in metric.parts]:
        raise ValueError(f"{name} is a metric of the whole group: it cannot be limited to a {unknown[0]}")
    return metric
