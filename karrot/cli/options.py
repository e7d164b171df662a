"""Defines the options that several commands share, and reads option values and secrets."""

import base64
import math
import os
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
LOCAL_KARROT = "http://127.0.0.1:5000"
client_properties_option = partial(click.option, "--command-config", type=click.Path(path_type=Path, dir_okay=False))
"""A file with properties of a Kafka client. Kafka's own tools use the same option name."""


def json_option(sentence: str) -> Callable[[Command], Command]:
    """Return the options ``--json`` and ``-o json``, which mean the same."""
    option = partial(click.option, type=click.Choice(["json"]), callback=lambda _context, _option, given: bool(given))
    return option_set(
        option("--json", "as_json", flag_value="json", help=sentence),
        option("-o", "as_json", help="The same as --json."),
    )


def loader(bind: str | None, config: Path | None) -> Callable[[], "Loaded"]:
    """Return a function that reads the settings, which the service calls at the start and at each reload."""
    from karrot.settings.loading import load

    overrides = {} if bind is None else {"bind": bind}
    return partial(load, os.environ, config=config, overrides=overrides)


def option_set(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command. ``--help`` lists the options in the given order."""

    def put_on(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return put_on


def reads(kind: Callable[[Any], "ValueKind[Any]"], made: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return a callback that reads an option. ``kind`` gets `karrot.settings.types`, and returns the kind of value.

    The callback raises Refused with a message that names the option, or the environment variable with the value.
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
karrot_option = partial(url_option, "--karrot", envvar="KARROT_URL")
name_option = partial(click.option, metavar="NAME", callback=reads(lambda types: types.text))
brokers_option = partial(
    click.option, "--bootstrap-servers", metavar="HOST:PORT,...", callback=reads(lambda types: types.brokers)
)


def read_span(longest_s: int) -> Callable[[click.Context, click.Parameter, str | None], timedelta | None]:
    """Return a callback that reads a duration from 1 to ``longest_s`` seconds."""
    return reads(lambda types: types.duration(1, longest_s), lambda seconds: timedelta(seconds=seconds))  # type: ignore[no-any-return]


def day_option(*names: str, **asked: Any) -> Callable[[Command], Command]:
    """Return an option for one or more days. The limits on the year prevent an overflow of `date`."""
    return click.option(*names, type=click.DateTime(["%Y-%m-%d"]), callback=_read_days, metavar="YYYY-MM-DD", **asked)


def _read_days(_context: click.Context, option: click.Parameter, given: Any) -> Any:
    for day in given if isinstance(given, tuple) else (given,):
        if isinstance(day, datetime) and not _FIRST_YEAR <= day.year <= _LAST_YEAR:
            raise Refused(f"{option.opts[0]} is {day.date()}: it must be from {_FIRST_YEAR} to {_LAST_YEAR}")
    return given


def read_seconds(least: float, most: float) -> Callable[[click.Context, click.Parameter, str], float]:
    """Return a callback that reads a short duration, such as ``0.5``, ``500ms`` or ``2.5s``, as seconds."""
    return reads(lambda types: types.timeout(least, most))  # type: ignore[no-any-return]


def credentials(user: str | None) -> dict[str, str]:
    """Return the Authorization header. Secrets are never arguments, because all users of a machine see arguments."""
    if user is not None:
        password = secret("KARROT_BURROW_PASSWORD")
        if password is None:
            raise ValueError("--user needs a password: set KARROT_BURROW_PASSWORD or KARROT_BURROW_PASSWORD_FILE")
        return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
    token = secret("KARROT_BURROW_TOKEN")
    if token and not (token.isascii() and token.isprintable()):
        raise ValueError("a Bearer token must be printable ASCII")
    return {"Authorization": f"Bearer {token}"} if token else {}


def secret(name: str) -> str | None:
    """Read a secret from the environment variable ``name``, or from the file in the variable ``<name>_FILE``."""
    from karrot.settings import sources

    variables = {each: os.environ[each] for each in (name, f"{name}_FILE") if each in os.environ}
    given = sources.merged([sources.from_environment(variables)], plain=(), secret=()).get(name)
    return None if given is None else sources.secret_text(given)


class Number(click.FloatRange):
    """A finite number in a range. This class refuses ``nan``, which `click.FloatRange` accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
