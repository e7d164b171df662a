"""What ``karrot history`` was told, as tables and as JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from karrot.cli.cells import UNKNOWN, clock, counted, iso, length, number, plain, safe
from karrot.cli.table_layout import Column, laid_out, terminal_width
from karrot.event import Status

if TYPE_CHECKING:
    from karrot.history import Days, GroupHistory, Incident, Stretch, TimeSeries

__all__ = [
    "groups_json",
    "groups_table",
    "in_words",
    "incidents_json",
    "incidents_table",
    "series_json",
    "series_table",
]

_STRETCHES_SHOWN = 5

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


def groups_table(groups: Sequence["GroupHistory"], limit: int | None = None) -> Iterator[str]:
    """A line for each group, ``limit`` of them at the most, and how many there are in all."""
    yield from laid_out(_GROUPS, list(map(_group_row, groups[:limit])), terminal_width())
    worst = Counter(each.worst_status for each in groups if each.worst_status is not None)
    tally = ", ".join(f"{worst[status.name]} {status.name}" for status in reversed(Status) if status.name in worst)
    yield _of_all(groups, "group", limit) + (f"; at worst {tally}" if tally else "")


def _of_all(found: Sequence[object], what: str, limit: int | None) -> str:
    """How many there are, and how many of them are shown if not all."""
    shown = "" if limit is None or limit >= len(found) else f" ({limit} shown)"
    return counted(len(found), what) + shown


def _group_row(one: "GroupHistory") -> tuple[str, ...]:
    return (
        safe(one.cluster),
        safe(one.group),
        _known(one.status),
        _known(one.worst_status),
        number(one.lag),
        number(one.lag_max),
        number(None if one.lag_seconds_max is None else round(one.lag_seconds_max)),
        number(one.minutes),
        number(one.minutes_not_ok),
        number(one.incidents),
        clock(one.last_at),
    )


def _known(name: str | None) -> str:
    return UNKNOWN if name is None else safe(name)


def series_table(series: "TimeSeries") -> Iterator[str]:
    """A line for each step."""
    columns = [Column("TIME"), *(Column(name.upper().replace("_", "-"), is_number=True) for name in series.metrics)]
    rows = [(clock(point.at), *map(number, point.values)) for point in series.points]
    return laid_out(columns, rows)


def incidents_table(incidents: Sequence["Incident"], limit: int | None = None) -> Iterator[str]:
    """A line for each incident, ``limit`` of them at the most, and how many there are in all."""
    if incidents:
        yield from laid_out(_INCIDENTS, list(map(_incident_row, incidents[:limit])), terminal_width())
    still = sum(each.ended_at is None for each in incidents)
    yield _of_all(incidents, "incident", limit) + (f", {still} open" if still else "")


def _incident_row(one: "Incident") -> tuple[str, ...]:
    return (
        clock(one.started_at),
        UNKNOWN if one.ended_at is None else length(one.ended_at - one.started_at),
        safe(one.cluster),
        safe(one.group),
        _known(one.worst_status),
        number(one.peak_lag),
        safe(one.ended_by or "open"),
        number(one.events),
        ", ".join(map(safe, one.topics)) or UNKNOWN,
        _known(one.incident_id),
    )


def in_words(days: Sequence["Stretch"]) -> str:
    """Days for a sentence: the first few stretches of them, and how many days follow."""
    shown, rest = days[:_STRETCHES_SHOWN], days[_STRETCHES_SHOWN:]
    words = ", ".join(f"{each.first}" if each.length == 1 else f"{each.first} to {each.last}" for each in shown)
    return f"{words} and {counted(sum(each.length for each in rest), 'later day')}" if rest else words


def groups_json(groups: Sequence["GroupHistory"], days: "Days", uncounted: Sequence["Stretch"]) -> dict[str, Any]:
    """All of it, by the names of the answer's fields; days without known incidents are there if there are some."""
    told = _days_json(days) | ({"incidents_missing": _stretches_json(uncounted)} if uncounted else {})
    return {"groups": [plain(asdict(each)) for each in groups], "days": told}


def _days_json(days: "Days") -> dict[str, Any]:
    """A year is a few stretches, each from its first to its last day."""
    return {"held": _stretches_json(days.held), "missing": _stretches_json(days.missing)}


def _stretches_json(days: Iterable["Stretch"]) -> list[dict[str, str]]:
    return [{"first": each.first.isoformat(), "last": each.last.isoformat()} for each in days]


def series_json(series: "TimeSeries", days: "Days") -> dict[str, Any]:
    """The points as objects with the metrics' names."""
    points = [{"at": iso(each.at)} | dict(zip(series.metrics, each.values, strict=True)) for each in series.points]
    return {
        "cluster": series.cluster,
        "group": series.group,
        "granularity_seconds": series.granularity // timedelta(seconds=1),
        "points": points,
        "days": _days_json(days),
    }


def incidents_json(incidents: Sequence["Incident"], days: "Days", newest_verdict: datetime | None) -> dict[str, Any]:
    """All of it, by the names of the answer's fields, and how much of the time it is about."""
    told = {"incidents": [plain(asdict(each)) for each in incidents], "days": _days_json(days)}
    return told | plain({"newest_verdict": newest_verdict})
