"""What ``karrot history`` was told, as tables and as JSON."""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from karrot.cli.columns import Column, laid_out, shown

if TYPE_CHECKING:
    from karrot.history import GroupHistory, Incident, TimeSeries

__all__ = ["groups_json", "groups_table", "incidents_json", "incidents_table", "series_json", "series_table"]

_UNKNOWN = "-"

_GROUPS = (
    Column("CLUSTER", may_be_cut=True, goes=4),
    Column("GROUP", may_be_cut=True),
    Column("STATUS"),
    Column("WORST", goes=3),
    Column("LAG", is_number=True),
    Column("MAX-LAG", is_number=True),
    Column("MAX-SECONDS", is_number=True, goes=2),
    Column("MINUTES", is_number=True, goes=1),
    Column("NOT-OK", is_number=True),
    Column("INCIDENTS", is_number=True),
    Column("LAST", goes=5),
)
_INCIDENTS = (
    Column("STARTED"),
    Column("LASTED", is_number=True),
    Column("CLUSTER", may_be_cut=True, goes=4),
    Column("GROUP", may_be_cut=True),
    Column("WORST"),
    Column("PEAK-LAG", is_number=True),
    Column("ENDED-BY"),
    Column("EVENTS", is_number=True, goes=2),
    Column("TOPICS", may_be_cut=True, goes=3),
    Column("INCIDENT", may_be_cut=True, goes=1),
)


def groups_table(groups: Sequence["GroupHistory"]) -> Iterator[str]:
    """A line for each group, and how many there are."""
    yield from laid_out(_GROUPS, list(map(_group_row, groups)), _width())
    worst = Counter(each.worst_status for each in groups)
    tally = ", ".join(f"{number} {_safe(status)}" for status, number in sorted(worst.items()))
    yield f"{_counted(len(groups), 'group')}; at worst {tally}"


def _group_row(one: "GroupHistory") -> tuple[str, ...]:
    return (
        _safe(one.cluster),
        _safe(one.group),
        _safe(one.status),
        _safe(one.worst_status),
        _number(one.lag),
        _number(one.lag_max),
        _number(one.lag_seconds_max),
        _number(one.minutes),
        _number(one.minutes_not_ok),
        _number(one.incidents),
        _clock(one.last_at),
    )


def series_table(series: "TimeSeries") -> Iterator[str]:
    """A line for each step."""
    columns = [Column("TIME"), *(Column(name.upper().replace("_", "-"), is_number=True) for name in series.metrics)]
    rows = [(_clock(point.at), *map(_number, point.values)) for point in series.points]
    return laid_out(columns, rows)


def incidents_table(incidents: Sequence["Incident"]) -> Iterator[str]:
    """A line for each incident, and how many there are."""
    if incidents:
        yield from laid_out(_INCIDENTS, list(map(_incident_row, incidents)), _width())
    still = sum(each.ended_at is None for each in incidents)
    yield _counted(len(incidents), "incident") + (f", {still} open" if still else "")


def _incident_row(one: "Incident") -> tuple[str, ...]:
    return (
        _clock(one.started_at),
        _UNKNOWN if one.ended_at is None else _length(one.ended_at - one.started_at),
        _safe(one.cluster),
        _safe(one.group),
        _UNKNOWN if one.worst_status is None else _safe(one.worst_status),
        _number(one.peak_lag),
        _safe(one.ended_by or "open"),
        _number(one.events),
        ", ".join(map(_safe, one.topics)) or _UNKNOWN,
        _UNKNOWN if one.incident_id is None else _safe(one.incident_id),
    )


def groups_json(groups: Sequence["GroupHistory"]) -> dict[str, Any]:
    """All of it, by the names of the answer's fields."""
    return {"groups": [_plain(asdict(each)) for each in groups]}


def series_json(series: "TimeSeries") -> dict[str, Any]:
    """The points as objects with the metrics' names."""
    points = [{"at": _iso(each.at)} | dict(zip(series.metrics, each.values, strict=True)) for each in series.points]
    return {
        "cluster": series.cluster,
        "group": series.group,
        "granularity_seconds": series.granularity // timedelta(seconds=1),
        "points": points,
    }


def incidents_json(incidents: Sequence["Incident"]) -> dict[str, Any]:
    """All of it, by the names of the answer's fields."""
    return {"incidents": [_plain(asdict(each)) for each in incidents]}


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _iso(value) if isinstance(value, datetime) else value for name, value in fields.items()}


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def _length(span: timedelta) -> str:
    """Two units at the most: 45s, 12m 5s, 3h 20m, 2d 4h."""
    seconds = round(span.total_seconds())
    units = ((seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s"))
    first = next((at for at, (count, _) in enumerate(units) if count), len(units) - 1)
    return " ".join(f"{count}{unit}" for count, unit in units[first : first + 2] if count) or "0s"


def _number(value: float | None) -> str:
    """A dash for what is not known; as many digits as say something."""
    if value is None:
        return _UNKNOWN
    return str(value) if isinstance(value, int) else f"{value:.3f}".rstrip("0").rstrip(".")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _safe(text: str) -> str:
    return shown(text, sys.stdout.encoding)


def _width() -> int | None:
    """The terminal's; none where the output is kept or COLUMNS does not ask for one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None
