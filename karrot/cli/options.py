"""Options of commands: several put on at once, and what their texts stand for."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from karrot.cli.common import valid

if TYPE_CHECKING:
    from karrot.values import Kind

__all__ = ["asked_for", "put_on", "read_span", "value_of"]

T = TypeVar("T")
Command = Callable[..., None]


def put_on(command: Command, *options: Callable[[Command], Command]) -> Command:
    """The command with these options, in the order in which ``--help`` lists them."""
    for option in reversed(options):
        command = option(command)
    return command


def value_of(kind: "Kind[T]", option: str, text: str) -> T:
    """What the text of an option stands for. Raises Refused with a sentence that names the option."""
    from karrot.values import checked

    return valid(partial(checked, kind, option, text))


def asked_for(kind: "Kind[T]", name: str, asked: Mapping[str, Any]) -> T:
    """The same of the options that click gathered, ``name`` among them."""
    return value_of(kind, f"--{name.replace('_', '-')}", asked[name])


def read_span(longest_s: int) -> Callable[[click.Context, click.Parameter, str | None], timedelta | None]:
    """A callback for options of a span of time, of a second at the least."""

    def read(_context: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
        from karrot.values import duration

        return None if text is None else timedelta(seconds=value_of(duration(1, longest_s), option.opts[0], text))

    return read
