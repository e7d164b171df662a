"""Renders ``karrot render ecs-autoscaling``: policies and alarms that scale on the lag of one consumer group."""

import re
from hashlib import sha256
from typing import Any

from karrot.render import jinja_templates
from karrot.render.policies_and_alarms import parts_of
from karrot.render.scaling_recipe import Scaling
from karrot.reporters.cloudwatch.name_encoding import dimension_value

_LONGEST_NAME = 255
_DESCRIPTIONS = {
    "WakeUpAlarm": "There are unread messages but no consumer runs",
    "LagHighAlarm": "The lag is too high",
    "LagLowAlarm": "The lag has been low for a long time",
    "MaxCapacityAlarm": "The maximum capacity is reached: the lag may continue to grow",
    "HeartbeatAlarm": "Karrot or Burrow is silent: nothing is scaled on lag until both are back",
}


def autoscaling(asked: Scaling) -> str:
    """The recipe as a CloudFormation template."""
    policies, alarms = parts_of(asked)
    needed = sorted({asked.measured, "Status"} | ({"Lag"} if asked.recipe == "from-zero" else set()))
    cluster, group = (dimension_value(name).text[:_LONGEST_NAME] for name in (asked.burrow_cluster, asked.group))
    context: dict[str, Any] = {
        "asked": asked,
        "policies": policies,
        "actions": [
            {"id": f"Schedule{number}{word}", "name": f"karrot-{number}-{word.lower()}", "at": at, "least": least}
            for number, each in enumerate(asked.scheduled, start=1)
            for word, at, least in (("Begin", each.begins, each.tasks), ("End", each.ends, asked.least))
        ],
        "alarms": alarms,
        "descriptions": {
            **_DESCRIPTIONS,
            "StatusAlarm": f"The group {group} on {cluster} is in ERR",
            "NoLagAlarm": f"CloudWatch gets no lag of the group {group} on {cluster}: nothing is scaled on its lag",
        },
        "unit": "task" if asked.on_ecs else "instance",
        "measured_in": "seconds" if asked.measure == "max_lag_seconds" else "messages",
        "needed": needed,
        "input": {
            "namespace": asked.namespace,
            "cluster": asked.burrow_cluster,
            "group": asked.group,
            "metrics": needed,
            "resolution": 1 if asked.high_resolution else 60,
        },
        "names": {name: _name(asked, name) for name in (*policies, *alarms)},
        "resource_id": f"service/{asked.ecs_cluster}/{asked.service}",
    }
    return jinja_templates.rendered("ecs/autoscaling.yaml.j2", **context)


def _name(asked: Scaling, logical_id: str) -> str:
    """The name of a policy or alarm; unique to each service and Auto Scaling group."""
    scaled = f"{asked.ecs_cluster}/{asked.service}" if asked.on_ecs else asked.asg_name
    words = re.sub(r"(?<!^)(?=[A-Z])", "-", logical_id).lower()
    text = f"karrot/{scaled}/{words}"
    digest = sha256(text.encode()).hexdigest()[:8]
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 9]}~{digest}"
