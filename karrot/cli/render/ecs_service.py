"""``karrot render ecs-service``: prints a CloudFormation template that runs Karrot on ECS."""

from functools import partial
from typing import Any

import click

from karrot.cli.errors import valid


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
