"""Renders ``karrot render ecs-autoscaling``: policies and alarms that scale on the lag of one consumer group.

The template defines the policies, the alarms and their metric math. This module makes the names and the schedules.
docs/autoscaling.md explains the policies and alarms.
"""

import re
from collections.abc import Callable
from functools import partial
from hashlib import sha256

from karrot.render import jinja_templates
from karrot.render.cloudwatch_metric_names import heartbeat_of, lag_of, running_of, utilization_of
from karrot.render.scaling_recipe import DAYS, Scaling
from karrot.reporters.cloudwatch.data import dimension_value

_LONGEST_NAME = 255


def autoscaling(asked: Scaling) -> str:
    by_age = asked.measure == "max_lag_seconds"
    cluster, group = (dimension_value(name).text[:_LONGEST_NAME] for name in (asked.burrow_cluster, asked.group))
    warm_up = 60 if asked.on_ecs else 300  # an Auto Scaling group uses it as warm-up time of a new instance
    return jinja_templates.rendered(
        "ecs/autoscaling.yaml.j2",
        asked=asked,
        actions=[
            {"id": f"Schedule{number}{word}", "name": f"karrot-{number}-{word.lower()}", "at": at, "least": least}
            for number, each in enumerate(asked.scheduled, start=1)
            for word, at, least in (
                ("Begin", _recurrence(asked, each.days, each.start), each.tasks),
                ("End", _recurrence(asked, *each.end), asked.least),
            )
        ],
        threshold=asked.threshold,
        out_cooldown_s=warm_up if asked.scale_out_cooldown is None else asked.scale_out_cooldown,
        in_cooldown_s=300 if asked.scale_in_cooldown is None else asked.scale_in_cooldown,
        by_age=by_age,
        lag_of=partial(lag_of, asked.namespace, asked.burrow_cluster, asked.group),
        heartbeat=heartbeat_of(asked.namespace, asked.burrow_cluster),
        counted=running_of(asked.ecs_cluster, asked.service, asked.asg_name),
        utilization=utilization_of(asked.ecs_cluster, asked.service),
        cluster=cluster,
        group=group,
        unit="task" if asked.on_ecs else "instance",
        measured_in="seconds" if by_age else "messages",
        needed=sorted({asked.measured, "Status"} | ({"Lag"} if asked.recipe == "from-zero" else set())),
        name_of=_names(asked),
        resource_id=f"service/{asked.ecs_cluster}/{asked.service}",
    )


def _names(asked: Scaling) -> Callable[[str], str]:
    """Return a function from the logical id of a policy or alarm to its name, unique for each scaled target."""
    scaled = f"{asked.ecs_cluster}/{asked.service}" if asked.on_ecs else asked.asg_name

    def name_of(logical_id: str) -> str:
        text = f"karrot/{scaled}/{re.sub(r'(?<!^)(?=[A-Z])', '-', logical_id).lower()}"
        digest = sha256(text.encode()).hexdigest()[:8]
        return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 9]}~{digest}"

    return name_of


def _recurrence(asked: Scaling, days: tuple[int, ...], minute: int) -> str:
    """Format a minute of the day on some days of the week as a cron expression for ECS or an Auto Scaling group."""
    every = "*" if len(days) == len(DAYS) else ""
    if asked.on_ecs:
        return f"cron({minute % 60} {minute // 60} ? * {every or ','.join(DAYS[day] for day in days)} *)"
    sunday_is_0 = ",".join(str((day + 1) % len(DAYS)) for day in days)
    return f"{minute % 60} {minute // 60} * * {every or sunday_is_0}"
