"""``karrot render``: prints configuration for other programs, with one command for each."""

import click

from karrot.cli.render import aws, prometheus_and_grafana
from karrot.cli.render.athena import athena

__all__ = ["render"]


@click.group(
    commands=[
        aws.ecs_autoscaling,
        aws.cloudwatch_dashboard,
        prometheus_and_grafana.alert_rules,
        prometheus_and_grafana.recording_rules,
        prometheus_and_grafana.dashboard,
        athena,
    ]
)
def render() -> None:
    """Print configuration for other programs.

    The programs are Prometheus, Grafana and, on AWS, ECS, CloudWatch and Athena.
    """
