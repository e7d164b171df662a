"""``karrot render``: prints configuration for other programs."""

import click

from karrot.cli.render import (
    athena,
    aws,
    bridging_rules,
    cloudwatch_dashboard,
    dashboard,
    ecs_service,
    prometheus_and_grafana,
    query_engines,
    recording_rules,
)

__all__ = ["render"]


@click.group(
    commands=[
        aws.ecs_autoscaling,
        ecs_service.ecs_service,
        cloudwatch_dashboard.cloudwatch_dashboard,
        prometheus_and_grafana.alert_rules,
        recording_rules.recording_rules,
        bridging_rules.bridging_rules,
        dashboard.dashboard,
        athena.athena,
        query_engines.druid,
    ]
)
def render() -> None:
    """Print configuration for other programs."""
