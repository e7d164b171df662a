"""``karrot render ecs-autoscaling``: prints policies and alarms that scale a service on its lag."""

from typing import Any

import click

from karrot.cli.render.scaling_options import scaling, scaling_options


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
    from karrot.render.ecs_autoscaling import autoscaling

    click.echo(autoscaling(scaling(**given), output), nl=False)
