"""``karrot render``: prints configuration for other programs, with one command for each."""

import click

from karrot.cli.render import aws, prometheus_and_grafana, query_engines
from karrot.cli.render.schema import schema

__all__ = ["render"]


@click.group(
    commands=[
        aws.ecs_autoscaling,
        aws.ecs_service,
        aws.cloudwatch_dashboard,
        prometheus_and_grafana.alert_rules,
        prometheus_and_grafana.recording_rules,
        prometheus_and_grafana.bridging_rules,
        prometheus_and_grafana.dashboard,
        query_engines.athena,
        query_engines.druid,
        schema,
    ]
)
def render() -> None:
    """Print configuration for other programs.

    The programs are Prometheus, Grafana, Druid and, on AWS, ECS, CloudWatch and Athena. For programs that read Karrot's
    events, `schema` prints a JSON Schema.
    """
