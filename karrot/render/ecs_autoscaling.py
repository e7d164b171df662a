"""Renders ``karrot render ecs-autoscaling``: policies and alarms that scale on the lag of one consumer group.

The template defines the policies and alarms. This module makes the metric math and the names.
docs/autoscaling.md explains the policies and alarms.
"""

import re
from collections.abc import Callable, Mapping
from hashlib import sha256

from karrot.render import jinja_templates
from karrot.render.cloudwatch_metric_names import CloudWatchMetric, heartbeat_of, lag_of, running_of, utilization_of
from karrot.render.scaling_recipe import DAYS, Scaling
from karrot.reporters.cloudwatch.data import dimension_value

Statistic = tuple[CloudWatchMetric, str]
Query = Mapping[str, str | Statistic]
"""Maps ids to statistics and expressions. The first entry is the result, the others are statistics that it uses."""

_LONGEST_NAME = 255
_REPEATED = "FILL(running, REPEAT)"
_RUNNING_ON_ECS = f"FILL({_REPEATED}, 0)"
"""ECS may publish no value while no task runs. FILL replaces a late value by the previous value, or else by 0."""


def autoscaling(asked: Scaling) -> str:
    by_age = asked.measure == "max_lag_seconds"
    needed = sorted({asked.measured, "Status"} | ({"Lag"} if asked.recipe == "from-zero" else set()))
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
        queries={
            "measured": _maximum(asked, asked.measured),
            "tracked": _tracked(asked, by_age=by_age),
            "unread": _unread_while_asleep(asked),
            "status": _maximum(asked, "Status"),
            "running": {"running": _running(asked, "Maximum")},
            "heartbeat": {"heartbeat": (heartbeat_of(asked.namespace, asked.burrow_cluster), "Maximum")},
        },
        cluster=cluster,
        group=group,
        unit="task" if asked.on_ecs else "instance",
        measured_in="seconds" if by_age else "messages",
        needed=needed,
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


def _maximum(asked: Scaling, name: str) -> dict[str, Statistic]:
    """Return the maximum of a metric of the group, with the id ``lag``."""
    return {"lag": (lag_of(asked.namespace, asked.burrow_cluster, asked.group, name), "Maximum")}


def _running(asked: Scaling, statistic: str = "Average") -> Statistic:
    """Return the statistic with the number of running tasks or instances.

    A running task has one sample of ``CPUUtilization`` per minute (ECS Developer Guide, "Service RUNNING task count").
    """
    if asked.counts_samples:
        return _utilization(asked)
    return running_of(asked.ecs_cluster, asked.service, asked.asg_name), statistic


def _utilization(asked: Scaling) -> Statistic:
    """Return a statistic above 0 while any task runs. A task can have several samples, so it counts no tasks."""
    return utilization_of(asked.ecs_cluster, asked.service), "SampleCount"


def _tracked(asked: Scaling, *, by_age: bool) -> Query:
    """Return the query that target tracking keeps at its target: the lag in seconds, or the lag per task.

    With the recipe from-zero, the query's value is the target while no task runs, because lag then only means that no
    task reads. If its value were the lag itself, target tracking would start the maximum number of tasks. Without a
    value, AlarmLow would use older points and stop the new task.
    """
    lag = _maximum(asked, asked.measured)
    points = {} if by_age else {"points": (lag["lag"][0], "SampleCount")}
    if asked.recipe == "from-zero":
        asleep = f"{_RUNNING_ON_ECS if asked.on_ecs else _REPEATED} < 1"
        # ``value`` is the last argument of IF: a missing last argument gives no value, a missing second argument gives
        # 0 (CloudWatch User Guide, "Using IF expressions").
        value = "lag" if by_age else _per_task(asked, _REPEATED)
        held = f"IF({asleep}, {jinja_templates.number(asked.threshold)}, {value})"
        running = _utilization(asked) if by_age and asked.on_ecs else _running(asked)
        return {"held": held, **lag, **points, "running": running}
    return lag if by_age else {"backlog": _per_task(asked, "running"), **lag, **points, "running": _running(asked)}


def _per_task(asked: Scaling, running: str) -> str:
    """Return the expression for the lag per task. If the lag has no data point, the expression has no value.

    With a resolution of 20 seconds, a task has three samples per minute. More samples than ``max_tasks`` show this
    resolution. With fewer samples, the lag per task seems to be a third, and the recipe scales more slowly.

    points / points is 1 if the lag has a data point. The factor is in the divisor, because CloudWatch may read a
    missing factor as 0. A division by 0 has no value, but a dividend of 0 would be a lag of 0.
    """
    samples_per_task = f" / IF({asked.max_tasks} < {running}, 3, 1)" if asked.counts_samples else ""
    return f"lag / ({running}{samples_per_task} * points / points)"


def _unread_while_asleep(asked: Scaling) -> Query:
    """Return the query for the unread messages while no task runs, and 0 while a task runs."""
    lag = _maximum(asked, "Lag")
    if asked.on_ecs:
        return {"unread": f"IF({_RUNNING_ON_ECS} < 1, lag, 0)", **lag, "running": _utilization(asked)}
    running = {"running": _running(asked, "Maximum"), "counted": _running(asked, "SampleCount")}
    return {"unread": "IF(running < 1, lag / (counted / counted), 0)", **lag, **running}
