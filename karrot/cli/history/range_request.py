"""Reads the options of the commands about a range of time, and names the days that the tables lack."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Self

import click

from karrot.cli.errors import NotDone
from karrot.cli.history.open_tables import named, one_line, span_of
from karrot.cli.options import option_set
from karrot.text import counted_plain, to_minute

if TYPE_CHECKING:
    from karrot.event import DayRange, TimeRange
    from karrot.history import Days, History
    from karrot.settings.storage_place import Place


_RANGES_SHOWN = 5
range_options = option_set(
    click.option(
        "--from",
        "since",
        default="24h",
        show_default=True,
        help="Start: a time in ISO 8601 (UTC), or an age such as 90m, 24h or 7d.",
    ),
    click.option("--to", "until", default="now", show_default=True, help="End, not included. The same form as --from."),
    click.option("--limit", type=click.IntRange(1), help="Show at most this number of rows."),
    click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of a table."),
)


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """The values of the options that the commands about a range of time share."""

    tables: "Place"
    span: "TimeRange"
    passed: "TimeRange"
    """The part of the span that has passed. Later days do not count as missing."""
    cluster: str | None
    limit: int | None
    as_json: bool

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Remove the shared options from ``given`` and read them."""
        from karrot.event import TimeRange

        span, now = span_of(given.pop("since"), given.pop("until")), datetime.now(UTC)
        passed = TimeRange(span.start, min(span.end, now)) if span.start < now else span
        return cls(given.pop("tables"), span, passed, given.pop("cluster"), given.pop("limit"), given.pop("as_json"))


def nothing_known(request: RangeRequest, history: "History", what: str, group: str | None, table: str) -> NotDone:
    """The error for a range of time without data. Its message gives the reason and the days that the tables have."""
    from karrot.history import day_ranges

    whom = named(request.cluster, group)
    days, its_days = history.days(table), history.days(table, cluster=request.cluster, group=group)
    if table == "incidents" and (lacking := history.lacking(request.passed, cluster=request.cluster, group=group)):
        there = lacks_incidents(request, lacking)
    elif its_days:
        there = f"{request.tables} has {in_words(list(day_ranges(its_days)))}"
    elif not history.knows(cluster=request.cluster, group=group):
        return NotDone(one_line(f"no data about {whom}: no table in {request.tables} has it, on any day"))
    elif days:
        there = f"{request.tables} has {in_words(list(day_ranges(days)))}, but without {whom}"
    elif table == "incidents":
        there = f"{request.tables} has no day with verdicts that karrot pipeline derive has completed"
    else:
        there = f"{request.tables} has no table {table}"
    span = f"{to_minute(request.span.start)} to {to_minute(request.span.end)} UTC"
    return NotDone(one_line(f"no data about {what} from {span}; {there}"))


def lacks_incidents(request: RangeRequest, lacking: Sequence[date]) -> str:
    """A sentence about days that derive completed but whose incidents are not in the tables, with the remedy."""
    from karrot.history import day_ranges

    days = in_words(list(day_ranges(lacking)))
    return (
        f"{request.tables}/incidents lacks the incidents of {days}: copy this table too, "
        "or remove _derived.json and run karrot pipeline derive"
    )


def in_words(days: "Sequence[DayRange]") -> str:
    """Days in words: the first few ranges, and the number of later days."""
    shown, rest = days[:_RANGES_SHOWN], days[_RANGES_SHOWN:]
    words = ", ".join(f"{each.first}" if each.length == 1 else f"{each.first} to {each.last}" for each in shown)
    return f"{words} and {counted_plain(sum(each.length for each in rest), 'later day')}" if rest else words


def say_missing(days: "Days", what: str, no_data: str = "no data") -> None:
    """Print the days that the tables lack."""
    if not days.missing:
        return
    missing, held = (sum(each.length for each in part) for part in (days.missing, days.held))
    of_days = f"{missing} of {counted_plain(missing + held, 'day')}"
    click.echo(f"karrot: {no_data} about {what} on {in_words(days.missing)} ({of_days})", err=True)


def days_json(days: "Days") -> dict[str, Any]:
    """The days that the tables have and the days that they lack, as ranges."""
    return {"held": day_ranges_json(days.held), "missing": day_ranges_json(days.missing)}


def day_ranges_json(days: "Iterable[DayRange]") -> list[dict[str, str]]:
    """The first and the last day of each range."""
    return [{"first": each.first.isoformat(), "last": each.last.isoformat()} for each in days]
