"""``karrot render``: scaling policies, an ECS service and a dashboard for Amazon Web Services."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import valid
from karrot.cli.options import option_set

if TYPE_CHECKING:
    from karrot.render.scaling_recipe import Scaling


scaling_options = option_set(
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
"""The options of a recipe; `scaling` reads them. ``karrot simulate`` has them too."""


def scaling(**given: Any) -> "Scaling":
    """The recipe that the options describe. Wrong values end the command with a sentence each."""
    from karrot.render.scaling_recipe import Scaling

    return valid(partial(Scaling, **given))


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


@click.command("ecs-service")
@click.option("--ecs-cluster", metavar="NAME", required=True, help="The ECS cluster to run on.")
@click.option("--image", required=True, help="Karrot's image.")
@click.option("--burrow-cluster", metavar="NAME", required=True, help="The Kafka cluster as Burrow calls it.")
@click.option("--burrow-image", metavar="IMAGE", help="Burrow's image, to run Burrow too.")
@click.option("--kafka", metavar="HOST:PORT,...", help="Kafka's brokers, for Burrow.")
@click.option("--zookeeper", metavar="HOST:PORT,...", help="ZooKeeper, for Burrow: its notifiers need one.")
@click.option("--metrics", default="Lag", show_default=True, help="KARROT_CLOUDWATCH_METRICS.")
@click.option("--namespace", default="Karrot", show_default=True, help="KARROT_CLOUDWATCH_NAMESPACE.")
@click.option(
    "--dns-namespace", default="monitoring.internal", show_default=True, help="The private domain of Karrot's name."
)
def ecs_service(**given: Any) -> None:
    """Print a CloudFormation template that runs Karrot, and Burrow if asked, on ECS with Fargate."""
    from karrot.render.ecs_service import EcsService, service

    click.echo(service(valid(partial(EcsService, **given))), nl=False)


@click.command("cloudwatch-dashboard")
@click.option("--region", required=True, help="The region of the metrics.")
@click.option("--ecs-cluster", metavar="NAME", help="The ECS cluster of the service.")
@click.option("--service", metavar="NAME", help="The ECS service.")
@click.option("--asg-name", metavar="NAME", help="The Auto Scaling group, in place of a service.")
@click.option("--burrow-cluster", metavar="NAME", required=True, help="The Kafka cluster as Burrow calls it.")
@click.option("--group", metavar="NAME", required=True, help="The consumer group.")
@click.option("--max-lag-seconds", type=float, help="Drawn as a line.")
@click.option("--max-tasks", type=int, help="Drawn as a line.")
@click.option("--namespace", default="Karrot", show_default=True, help="KARROT_CLOUDWATCH_NAMESPACE.")
def cloudwatch_dashboard(**given: Any) -> None:
    """Print a dashboard that shows a group's lag against the tasks that run, for aws cloudwatch put-dashboard."""
    from karrot.render import dashboards

    click.echo(dashboards.cloudwatch_dashboard(valid(partial(dashboards.Dashboard, **given))), nl=False)
