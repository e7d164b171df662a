"""Reads the options of commands about a range of time, and names the days that the tables do not hold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from karrot.cli.errors import NotDone
from karrot.cli.history.open_tables import named, one_line, span_of
from karrot.cli.options import option_set
from karrot.text import counted_plain, to_minute

if TYPE_CHECKING:
    from karrot.event import DayRange, TimeRange
    from karrot.history import Days, History


_RANGES_SHOWN = 5
range_options = option_set(
    click.option(
        "--from", "since", default="24h", show_default=True, help="ISO 8601 (UTC), or so long ago: 90m, 24h, 7d."
    ),
    click.option("--to", "until", default="now", show_default=True, help="Up to, not including; as --from."),
    click.option("--limit", type=click.IntRange(1), help="So many at the most."),
    click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of a table."),
)


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """The values of the options that these commands share."""

    tables: Path
    span: "TimeRange"
    passed: "TimeRange"
    """The part of the span that has passed: days to come are not missing."""
    cluster: str | None
    limit: int | None
    as_json: bool

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Take the common options out of ``given``."""
        from karrot.event import TimeRange

        span, now = span_of(given.pop("since"), given.pop("until")), datetime.now(UTC)
        passed = TimeRange(span.start, min(span.end, now)) if span.start < now else span
        return cls(given.pop("tables"), span, passed, given.pop("cluster"), given.pop("limit"), given.pop("as_json"))


def nothing_known(request: RangeRequest, history: "History", what: str, group: str | None, table: str) -> NotDone:
    """The error that says why there is no answer, and which days the tables have."""
    from karrot.history import day_ranges

    whom = named(request.cluster, group)
    days, its_days = history.days(table), history.days(table, cluster=request.cluster, group=group)
    if table == "incidents" and (lacking := history.lacking(request.passed, cluster=request.cluster, group=group)):
        there = lacks_incidents(request, lacking)
    elif its_days:
        there = f"{request.tables} has {in_words(list(day_ranges(its_days)))}"
    elif not history.knows(cluster=request.cluster, group=group):
        return NotDone(one_line(f"nothing is known of {whom}: no table of {request.tables} has it, on any day"))
    elif days:
        there = f"{request.tables} has {in_words(list(day_ranges(days)))}, without {whom}"
    elif table == "incidents":
        there = f"{request.tables} has no day with verdicts that karrot pipeline derive has finished"
    else:
        there = f"{request.tables} has no table {table}"
    span = f"{to_minute(request.span.start)} to {to_minute(request.span.end)} UTC"
    return NotDone(one_line(f"nothing is known of {what} from {span}; {there}"))


def lacks_incidents(request: RangeRequest, lacking: Sequence[date]) -> str:
    """Why days that derive has finished have no incidents, and what to do about it."""
    from karrot.history import day_ranges

    days = in_words(list(day_ranges(lacking)))
    return (
        f"{request.tables / 'incidents'} lacks incidents of {days}: copy that table too, "
        "or remove _derived.json and run karrot pipeline derive"
    )


def in_words(days: "Sequence[DayRange]") -> str:
    """Days in words: their first few ranges, and how many days follow."""
    shown, rest = days[:_RANGES_SHOWN], days[_RANGES_SHOWN:]
    words = ", ".join(f"{each.first}" if each.length == 1 else f"{each.first} to {each.last}" for each in shown)
    return f"{words} and {counted_plain(sum(each.length for each in rest), 'later day')}" if rest else words


def say_missing(days: "Days", what: str, nothing: str = "nothing") -> None:
    """Print the days that the tables do not hold."""
    if not days.missing:
        return
    missing, held = (sum(each.length for each in part) for part in (days.missing, days.held))
    of_days = f"{missing} of {counted_plain(missing + held, 'day')}"
    click.echo(f"karrot: {nothing} is known of {what} on {in_words(days.missing)} ({of_days})", err=True)


def days_json(days: "Days") -> dict[str, Any]:
    """The days that the tables hold and those that they do not, as ranges."""
    return {"held": day_ranges_json(days.held), "missing": day_ranges_json(days.missing)}


def day_ranges_json(days: "Iterable[DayRange]") -> list[dict[str, str]]:
    """Each range by its first and its last day."""
    return [{"first": each.first.isoformat(), "last": each.last.isoformat()} for each in days]
