"""Defines the options that several commands share, and reads their values and the secrets of commands."""

import base64
import getpass
import math
import os
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from karrot.cli.errors import Refused, valid

if TYPE_CHECKING:
    from karrot.settings.loading import Loaded
    from karrot.settings.types import ValueKind


Command = Callable[..., None]
_FIRST_YEAR, _LAST_YEAR = 1970, 9998


config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="KARROT_CONFIG",
    show_envvar=True,
    help="A TOML file with settings. Environment variables override it.",
)
karrot_option = partial(click.option, "--karrot", "url")
"""The address of Karrot."""
client_properties_option = partial(click.option, "--command-config", type=click.Path(path_type=Path, dir_okay=False))
"""A file with properties of a Kafka client, under the name that Kafka's own tools use."""


def follow_option(sentence: str, *, default: bool) -> Callable[[Command], Command]:
    """The options ``--follow`` and ``--once``: whether a command continues until Ctrl-C, or ends after one pass."""
    return click.option("--follow/--once", default=default, help=sentence)


def loader(bind: str | None, config: Path | None) -> Callable[[], "Loaded"]:
    """A function that reads the settings from these sources. The start and each reload of the service call it."""
    from karrot.settings.loading import load

    overrides = {} if bind is None else {"bind": bind}
    return partial(load, os.environ, config=config, overrides=overrides)


def option_set(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """A decorator that adds these options to a command. ``--help`` lists them in this order."""

    def put_on(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return put_on


def reads(kind: Callable[[Any], "ValueKind[Any]"], made: Callable[[Any], Any] = lambda value: value) -> Any:
    """A callback that reads an option. ``kind`` chooses the kind of value from the module `karrot.settings.types`.

    Raises Refused with a message that names the option, or the environment variable that gave the value.
    """

    def read(context: click.Context, option: click.Parameter, text: str | None) -> Any:
        from karrot.settings import types

        if text is None:
            return None
        is_variable = context.get_parameter_source(str(option.name)) is ParameterSource.ENVIRONMENT
        name = str(option.envvar) if is_variable else option.opts[0]
        return made(valid(partial(types.checked, kind(types), name, text)))

    return read


pattern_option = partial(click.option, metavar="REGEX", callback=reads(lambda types: types.pattern))
url_option = partial(click.option, callback=reads(lambda types: types.url))
name_option = partial(click.option, metavar="NAME", callback=reads(lambda types: types.text))
brokers_option = partial(
    click.option, "--bootstrap-servers", metavar="HOST:PORT,...", callback=reads(lambda types: types.brokers)
)


def read_span(longest_s: int) -> Callable[[click.Context, click.Parameter, str | None], timedelta | None]:
    """A callback that reads a duration of at least one second."""
    return reads(lambda types: types.duration(1, longest_s), lambda seconds: timedelta(seconds=seconds))  # type: ignore[no-any-return]


def day_option(*names: str, **asked: Any) -> Callable[[Command], Command]:
    """An option for one or more days of the tables. The limits of the year keep date calculations within `date`."""
    return click.option(*names, type=click.DateTime(["%Y-%m-%d"]), callback=_read_days, metavar="YYYY-MM-DD", **asked)


def _read_days(_context: click.Context, option: click.Parameter, given: Any) -> Any:
    for day in given if isinstance(given, tuple) else (given,):
        if isinstance(day, datetime) and not _FIRST_YEAR <= day.year <= _LAST_YEAR:
            raise Refused(f"{option.opts[0]} is {day.date()}: it must be from {_FIRST_YEAR} to {_LAST_YEAR}")
    return given


def read_seconds(least: float, most: float) -> Callable[[click.Context, click.Parameter, str], float]:
    """A callback that reads a short duration, such as ``0.5``, ``500ms`` or ``2.5s``, as seconds."""
    return reads(lambda types: types.timeout(least, most))  # type: ignore[no-any-return]


def credentials(user: str | None) -> dict[str, str]:
    """The header with the credentials. A secret is never an argument, because every user can see arguments."""
    if user is not None:
        password = secret("KARROT_BURROW_PASSWORD") or _typed_password()
        return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
    token = secret("KARROT_BURROW_TOKEN")
    if token and not (token.isascii() and token.isprintable()):
        raise ValueError("a Bearer token must be printable ASCII")
    return {"Authorization": f"Bearer {token}"} if token else {}


def secret(name: str) -> str | None:
    """A secret from the environment, or from the file that ``<name>_FILE`` names."""
    from karrot.settings import sources

    told = {each: os.environ[each] for each in (name, f"{name}_FILE") if each in os.environ}
    given = sources.merged([sources.from_environment(told)], plain=(), secret=()).get(name)
    return None if given is None else sources.secret_text(given)


def _typed_password() -> str:
    """Ask for the password on the terminal. Raises `ValueError` if there is no terminal that hides the input."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)
            return str(click.prompt("Password", hide_input=True, err=True))
    except getpass.GetPassWarning as warning:
        raise ValueError(
            "there is no terminal to ask for the password: set KARROT_BURROW_PASSWORD or KARROT_BURROW_PASSWORD_FILE"
        ) from warning


class Number(click.FloatRange):
    """A finite number in a range. It refuses ``nan``, which the base class `click.FloatRange` accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
