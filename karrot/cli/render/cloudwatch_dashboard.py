"""``karrot render cloudwatch-dashboard``: prints a CloudWatch dashboard of a group and of its tasks."""

from functools import partial
from typing import Any

import click

from karrot.cli.errors import valid


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
