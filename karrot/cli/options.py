"""Options of commands: several put on at once, and what their texts stand for."""

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from karrot.cli.errors import Refused, valid

if TYPE_CHECKING:
    from karrot.settings.types import Kind

__all__ = ["Number", "asked_for", "day_option", "put_on", "read_span", "value_of"]

T = TypeVar("T")
Command = Callable[..., None]
_FIRST_YEAR, _LAST_YEAR = 1970, 9998


def put_on(command: Command, *options: Callable[[Command], Command]) -> Command:
    """The command with these options, in the order in which ``--help`` lists them."""
    for option in reversed(options):
        command = option(command)
    return command


def value_of(kind: "Kind[T]", option: str, text: str) -> T:
    """What the text of an option stands for. Raises Refused with a sentence that names the option."""
    from karrot.settings.types import checked

    return valid(partial(checked, kind, option, text))


def asked_for(kind: "Kind[T]", name: str, asked: Mapping[str, Any]) -> T:
    """The same of the options that click gathered, ``name`` among them."""
    return value_of(kind, f"--{name.replace('_', '-')}", asked[name])


def read_span(longest_s: int) -> Callable[[click.Context, click.Parameter, str | None], timedelta | None]:
    """A callback for options of a span of time, of a second at the least."""

    def read(_context: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
        from karrot.settings.types import duration

        return None if text is None else timedelta(seconds=value_of(duration(1, longest_s), option.opts[0], text))

    return read


def day_option(*names: str, **asked: Any) -> Callable[[Command], Command]:
    """An option for a day of the tables, or several: there must be days before and after it to reckon with."""
    return click.option(*names, type=click.DateTime(["%Y-%m-%d"]), callback=_read_days, metavar="YYYY-MM-DD", **asked)


def _read_days(_context: click.Context, option: click.Parameter, given: Any) -> Any:
    for day in given if isinstance(given, tuple) else (given,):
        if isinstance(day, datetime) and not _FIRST_YEAR <= day.year <= _LAST_YEAR:
            raise Refused(f"{option.opts[0]} is {day.date()}: it must be from {_FIRST_YEAR} to {_LAST_YEAR}")
    return given


class Number(click.FloatRange):
    """A number in a range; ``nan`` is beyond no bound, and yet no number."""

    def convert(  # noqa: D102 (click's)
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number to reckon with.", param, ctx)
        return number
