"""``karrot render``: prints configuration for other programs."""

import click

from karrot.cli.render import (
    alert_rules,
    athena,
    bridging_rules,
    cloudwatch_dashboard,
    dashboard,
    druid,
    ecs_autoscaling,
    ecs_service,
    recording_rules,
)

__all__ = ["render"]


@click.group(
    commands=[
        ecs_autoscaling.ecs_autoscaling,
        ecs_service.ecs_service,
        cloudwatch_dashboard.cloudwatch_dashboard,
        alert_rules.alert_rules,
        recording_rules.recording_rules,
        bridging_rules.bridging_rules,
        dashboard.dashboard,
        athena.athena,
        druid.druid,
    ]
)
def render() -> None:
    """Print configuration for other programs."""
