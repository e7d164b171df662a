"""Defines the options of a scaling recipe, for ``karrot render ecs-autoscaling`` and ``karrot simulate``."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import valid
from karrot.cli.options import put_on

if TYPE_CHECKING:
    from karrot.render.scaling_recipe import Scaling


_OPTIONS = (
    click.option("--recipe", type=click.Choice(["target-tracking", "step", "from-zero"]), required=True),
    click.option(
        "--target", type=click.Choice(["ecs", "asg"]), default="ecs", show_default=True, help="What is scaled."
    ),
    click.option("--ecs-cluster", metavar="NAME", help="The ECS cluster of the service."),
    click.option("--service", metavar="NAME", help="The ECS service."),
    click.option("--asg-name", metavar="NAME", help="The Auto Scaling group, with --target asg."),
    click.option("--burrow-cluster", metavar="NAME", required=True, help="The Kafka cluster as Burrow calls it."),
    click.option("--group", metavar="NAME", required=True, help="The consumer group."),
    click.option("--max-lag-seconds", type=float, help="The age of the oldest unread message that is still good."),
    click.option("--target-lag-per-task", type=float, help="Messages that may wait for each task (metric math)."),
    click.option("--max-lag", type=float, help="Messages that may wait in all, with --recipe step."),
    click.option("--wake-up-lag", type=float, default=1, show_default=True, help="Messages that start one, from zero."),
    click.option("--min-tasks", type=int, help="The fewest.", show_default="1; from-zero: 0"),
    click.option("--max-tasks", type=int, required=True, help="The most; as many as partitions have work."),
    click.option("--scale-out-cooldown", type=int, help="Seconds.", show_default="60; asg: 300"),
    click.option("--scale-in-cooldown", type=int, help="Seconds.", show_default="300"),
    click.option("--high-resolution", is_flag=True, help="Alarms every 10 seconds, with --recipe step."),
    click.option("--namespace", default="Karrot", show_default=True, help="KARROT_CLOUDWATCH_NAMESPACE."),
    click.option("--sns-topic-arn", metavar="ARN", help="Who is told of a silent monitor and of too many tasks."),
    click.option(
        "--shared/--no-shared",
        default=True,
        help="With the heartbeat alarm and the IAM policy: one each is enough for all groups of a Kafka cluster.",
    ),
)


def scaling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of a recipe; `scaling` takes their values."""
    return put_on(command, *_OPTIONS)


def scaling(**given: Any) -> "Scaling":
    """The recipe that the options describe. Values that make none end the command with a sentence each."""
    from karrot.render.scaling_recipe import Scaling

    return valid(partial(Scaling, **given))
