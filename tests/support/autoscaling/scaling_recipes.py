"""Lists every scaling recipe that Karrot can render, and renders one as CloudFormation."""

from typing import Any

import yaml

from karrot.render.ecs_autoscaling import autoscaling
from karrot.render.scaling_recipe import Scaling

TOPIC = "arn:aws:sns:eu-west-1:123456789012:alarms"

_SERVICE = {"ecs_cluster": "prod", "service": "orders-worker"}
_GROUP = {"target": "asg", "asg_name": "orders workers"}
_MEASURES: dict[str, dict[str, Any]] = {
    "tracking-seconds": {"recipe": "target-tracking", "max_lag_seconds": 60},
    "tracking-backlog": {"recipe": "target-tracking", "target_lag_per_task": 6000.5, "shared": False},
    "step-seconds": {"recipe": "step", "max_lag_seconds": 60, "sns_topic_arn": TOPIC},
    "step-messages": {"recipe": "step", "max_lag": 10_000, "min_tasks": 0},
    "step-fast": {"recipe": "step", "max_lag": 10_000, "high_resolution": True},
    "zero-seconds": {"recipe": "from-zero", "max_lag_seconds": 60},
    "scheduled": {
        "recipe": "target-tracking",
        "max_lag_seconds": 60,
        "schedule": ("FRI-SUN 22:30-02:00=8", "12:00-13:15=4"),
        "timezone": "Europe/Paris",
    },
    "zero-backlog": {"recipe": "from-zero", "target_lag_per_task": 6000, "wake_up_lag": 10},
}


def make_scaling(**changes: Any) -> Scaling:
    """Make a recipe for a group of a Kafka cluster from the options that matter to the test."""
    told = {"burrow_cluster": "prod-eu", "group": "orders", "max_tasks": 12, **changes}
    return Scaling(**(told if "asg_name" in told else {**_SERVICE, **told}))


def render_cloudformation(asked: Scaling) -> dict[str, Any]:
    """Render the template and parse it."""
    read: dict[str, Any] = yaml.safe_load(autoscaling(asked))
    return read


RECIPES = {
    f"{target}-{measure}": make_scaling(**settings, **where)
    for target, where in (("ecs", {}), ("asg", _GROUP))
    for measure, settings in _MEASURES.items()
} | {"ecs-insights-backlog": make_scaling(**_MEASURES["tracking-backlog"], container_insights=True)}
"""Every recipe and measure on each target, by name."""
