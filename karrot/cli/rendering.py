"""The commands that print configuration for others."""
# ruff: noqa: PLC0415

from functools import partial
from typing import Any

import click

from karrot.cli.common import url_option, valid
from karrot.cli.scaling import scaling, scaling_options

__all__ = ["COMMANDS"]


@click.command("burrow-config")
@url_option
@click.option("--user", help="For Basic authentication.")
@click.option("--template", "only_template", is_flag=True, help="Print only the template file.")
def burrow_config(url: str, user: str | None, *, only_template: bool) -> None:
    """Print what to put into burrow.toml, and why. The template file that it names comes with it."""
    from karrot import render

    text = valid(partial(render.burrow_config, url, user))
    click.echo(render.burrow_template() if only_template else text, nl=False)


@click.command("ecs-autoscaling")
@scaling_options
@click.option(
    "--format",
    "output",
    type=click.Choice(["cloudformation", "terraform"]),
    default="cloudformation",
    show_default=True,
    help="What to print.",
)
def ecs_autoscaling(output: str, **given: Any) -> None:
    """Print policies and alarms that scale a service on its consumer group's lag.

    target-tracking holds the lag at a target: --max-lag-seconds, or --target-lag-per-task.

    step adds while the lag is high and takes one away when it has long been low: --max-lag-seconds, or --max-lag,
    which works from 0 tasks too.

    from-zero starts one when something is unread and nothing runs; after that it is target-tracking.

    What Karrot and AWS have to be set to stands in the comments of what is printed.
    """
    from karrot.render.autoscaling import autoscaling

    click.echo(autoscaling(scaling(**given), output), nl=False)


@click.group()
def render() -> None:
    """Print configuration for other programs."""


render.add_command(ecs_autoscaling)

COMMANDS = (burrow_config, render)
