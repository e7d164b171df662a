"""Renders ``karrot render ecs-autoscaling``: policies and alarms that scale on the lag of one consumer group."""

import re
from hashlib import sha256
from typing import Any

from karrot.render import jinja_templates
from karrot.render.policies_and_alarms import parts_of
from karrot.render.scaling_recipe import FORMATS, Scaling
from karrot.reporters.cloudwatch.name_encoding import dimension_value

_TEMPLATES = dict(zip(FORMATS, ("ecs/autoscaling.yaml.j2", "ecs/autoscaling.tf.j2"), strict=True))
_LONGEST_NAME = 255
_DESCRIPTIONS = {
    "WakeUpAlarm": "There are unread messages but no consumer runs",
    "LagHighAlarm": "The lag is too high",
    "LagLowAlarm": "The lag has been low for a long time",
    "MaxCapacityAlarm": "The maximum capacity is reached: the lag may continue to grow",
    "HeartbeatAlarm": "Karrot or Burrow is silent: nothing is scaled on lag until both are back",
}


def autoscaling(asked: Scaling, output: str) -> str:
    """The recipe as a CloudFormation template or as Terraform; ``output`` is one of `FORMATS`."""
    text = jinja_templates.rendered(_TEMPLATES[output], **_context(asked))
    return jinja_templates.aligned(text) if output == "terraform" else text


def _context(asked: Scaling) -> dict[str, Any]:
    policies, alarms = parts_of(asked)
    needed = sorted({asked.measured, "Status"} | ({"Lag"} if asked.recipe == "from-zero" else set()))
    cluster, group = (dimension_value(name).text[:_LONGEST_NAME] for name in (asked.burrow_cluster, asked.group))
    return {
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
        "names": _Names(asked),
        "label": _label(asked),
        "resource_id": f"service/{asked.ecs_cluster}/{asked.service}",
    }


class _Names:
    """The names of policies and alarms by logical id; unique to each service and Auto Scaling group."""

    def __init__(self, asked: Scaling) -> None:
        self._scaled = f"{asked.ecs_cluster}/{asked.service}" if asked.on_ecs else str(asked.asg_name)

    def __getitem__(self, logical_id: str) -> str:
        words = re.sub(r"(?<!^)(?=[A-Z])", "-", logical_id).lower()
        text = f"karrot/{self._scaled}/{words}"
        return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 9]}~{_digest(text)}"


def _label(asked: Scaling) -> str:
    """The prefix of Terraform's resource names; unique to each service, with only characters that Terraform allows."""
    plain = f"karrot_{asked.ecs_cluster}_{asked.service}" if asked.on_ecs else f"karrot_{asked.asg_name}"
    made = re.sub(r"[^A-Za-z0-9_-]", "_", plain)
    return made if made == plain else f"{made}_{_digest(plain)}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]
