"""Keeps the words of earlier commands for one release: each names the new call, and does it."""

from typing import Any, Final

import click

from karrot.cli import history


class ReplacedWord(click.Command):
    """A word for a call of the command ``new`` with the arguments ``first``. The list of commands does not show it."""

    def __init__(self, name: str, new: click.Command, *first: str) -> None:
        super().__init__(name, help=f"Replaced by karrot pipeline {new.name}.", hidden=True, add_help_option=False)
        self.new, self.first = new, first

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as they are, because only the new command knows its options."""
        ctx.args = [*args]
        return args

    def invoke(self, ctx: click.Context) -> object:
        """Name the new call on standard error, without the given arguments, which can be secrets, and run it."""
        parent = ctx.parent or ctx
        call = " ".join([parent.command_path, str(self.new.name), *self.first])
        click.echo(
            f"karrot: {parent.command_path} {self.name} is replaced, and the next release removes it. Now: {call}, "
            "with the same options",
            err=True,
        )
        # Of an option that is there twice, the last one counts.
        with self.new.make_context(self.new.name, [*self.first, *ctx.args], parent=parent) as called:
            return self.new.invoke(called)


def _report(*, master: object, conf: object, **asked: Any) -> None:  # noqa: ARG001 (Spark's, without effect)
    words = "karrot pipeline report is replaced, and the next release removes it. Now: karrot history report"
    click.echo(f"karrot: {words}, with the same options except --master and --conf", err=True)
    click.get_current_context().invoke(history.report, **asked)


_SPARK: Final = (click.Option(["--master"]), click.Option(["--conf"], multiple=True))
REPORT: Final = click.Command("report", callback=_report, params=[*history.report.params, *_SPARK], hidden=True)
