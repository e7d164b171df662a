"""Defines the options that several commands have, and reads their texts."""

import math
import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from karrot.cli.errors import Refused, valid

if TYPE_CHECKING:
    from karrot.settings.loading import Loaded
    from karrot.settings.types import ValueKind

__all__ = [
    "Number",
    "asked_for",
    "config_option",
    "day_option",
    "loader",
    "put_on",
    "read_span",
    "url_option",
    "value_of",
]


T = TypeVar("T")
Command = Callable[..., None]
_FIRST_YEAR, _LAST_YEAR = 1970, 9998

config_option = click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="A TOML file with settings; the environment wins."
)
url_option = click.option("--url", required=True, help="Karrot's address, such as http://karrot:5000.")


def loader(bind: str | None, config: Path | None) -> Callable[[], "Loaded"]:
    """Reads the settings from the same places each time: now, and when the service is told to reload."""
    from karrot.settings.loading import load

    overrides = {} if bind is None else {"bind": bind}
    return partial(load, os.environ, config=config, overrides=overrides)


def put_on(command: Command, *options: Callable[[Command], Command]) -> Command:
    """The command with these options, in the order in which ``--help`` lists them."""
    for option in reversed(options):
        command = option(command)
    return command


def value_of(kind: "ValueKind[T]", option: str, text: str) -> T:
    """What the text of an option stands for. Raises Refused with a sentence that names the option."""
    from karrot.settings.types import checked

    return valid(partial(checked, kind, option, text))


def asked_for(kind: "ValueKind[T]", name: str, asked: Mapping[str, Any]) -> T:
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
