"""Lists the days that the tables have and the days that they lack, in words and as JSON."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from karrot.text import counted_plain

if TYPE_CHECKING:
    from karrot.event import DayRange
    from karrot.history import Days


_RANGES_SHOWN = 5


def in_words(days: Sequence["DayRange"]) -> str:
    """Days for a sentence: the first few ranges of them, and how many days follow."""
    shown, rest = days[:_RANGES_SHOWN], days[_RANGES_SHOWN:]
    words = ", ".join(f"{each.first}" if each.length == 1 else f"{each.first} to {each.last}" for each in shown)
    return f"{words} and {counted_plain(sum(each.length for each in rest), 'later day')}" if rest else words


def say_missing(days: "Days", what: str, nothing: str = "nothing") -> None:
    """Name the days that the answer is not about."""
    if not days.missing:
        return
    missing, held = (sum(each.length for each in part) for part in (days.missing, days.held))
    of_days = f"{missing} of {counted_plain(missing + held, 'day')}"
    click.echo(f"karrot: {nothing} is known of {what} on {in_words(days.missing)} ({of_days})", err=True)


def days_json(days: "Days") -> dict[str, Any]:
    """A year is a few ranges, each from its first to its last day."""
    return {"held": day_ranges_json(days.held), "missing": day_ranges_json(days.missing)}


def day_ranges_json(days: Iterable["DayRange"]) -> list[dict[str, str]]:
    """Each range by its first and its last day."""
    return [{"first": each.first.isoformat(), "last": each.last.isoformat()} for each in days]
