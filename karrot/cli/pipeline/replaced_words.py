"""Keeps the words of earlier commands for one release: each prints the new call, and does it."""

import re
import shlex
from collections.abc import Callable
from typing import Any, Final

import click

from karrot.text import redacted

_SECRET: Final = re.compile(r"(?i)([^=]*(?:secret|password|token|access\.?key|credential|jaas)[^=]*=).+", re.DOTALL)
"""``KEY=VALUE`` with a secret value, in an option such as --conf."""
_PATH: Final = re.compile(r"(?i)(https?://[^/,]+)/[^,]+")
"""The path of a web address, which is the secret of a webhook."""


class ReplacedWord(click.Command):
    """A word for a call of the command ``new``. The list of commands does not show it.

    ``written`` gets a copy of the given arguments, which it may change, and returns the arguments for ``new``.
    """

    def __init__(self, name: str, new: click.Command, written: Callable[[list[str]], list[str]]) -> None:
        super().__init__(name, help=f"Replaced by karrot pipeline {new.name}.", hidden=True, add_help_option=False)
        self.new, self.written = new, written

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as they are, because only the new command knows its options."""
        ctx.args = [*args]
        return args

    def invoke(self, ctx: click.Context) -> Any:
        """Print the new call on standard error, without secrets, and run it."""
        parent = ctx.parent or ctx
        group, args = parent.command_path, self.written([*ctx.args])
        call = shlex.join([*group.split(), str(self.new.name), *map(_shown, args)])
        click.echo(f"karrot: {group} {self.name} is replaced, and the next release removes it. Now: {call}", err=True)
        with self.new.make_context(self.new.name, args, parent=parent) as called:
            return self.new.invoke(called)


def taken(args: list[str], option: str, *, is_flag: bool = False) -> list[str]:
    """Remove an option from ``args``, and return its values: one for each time that it was given, "" for a flag."""
    values, kept, left = list[str](), list[str](), iter(args)
    for word in left:
        if word == option:
            values.append("" if is_flag else next(left, ""))
        elif word.startswith(f"{option}="):
            values.append(word.removeprefix(f"{option}="))
        else:
            kept.append(word)
    args[:] = kept
    return values


def _shown(word: str) -> str:
    """Return an argument without a secret value, a password in an address, and the path of a web address."""
    shown = _SECRET.sub(r"\1***", word)
    return _PATH.sub(r"\1/***", redacted(shown)) if "://" in shown else shown
