"""``karrot render``: scaling policies, an ECS service and a dashboard for Amazon Web Services."""

from functools import partial
from typing import Any

import click

from karrot.cli.errors import valid
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
    from karrot.render.cloudwatch_dashboard import Dashboard, dashboard

    click.echo(dashboard(valid(partial(Dashboard, **given))), nl=False)
