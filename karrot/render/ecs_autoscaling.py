"""Renders ``karrot render ecs-autoscaling``: policies and alarms that scale on the lag of one consumer group.

docs/autoscaling.md explains them.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from karrot.event import Status
from karrot.render import jinja_templates
from karrot.render.cloudwatch_metric_names import CloudWatchMetric, heartbeat_of, lag_of, running_of, utilization_of
from karrot.render.scaling_recipe import Scaling
from karrot.reporters.cloudwatch.datum_limits_and_batches import dimension_value

_LONGEST_NAME = 255
_DESCRIPTIONS = {
    "WakeUpAlarm": "There are unread messages but no consumer runs",
    "LagHighAlarm": "The lag is too high",
    "LagLowAlarm": "The lag has been low for a long time",
    "MaxCapacityAlarm": "The maximum capacity is reached: the lag may continue to grow",
    "HeartbeatAlarm": "Karrot or Burrow is silent: nothing is scaled on lag until both are back",
}
_LOW_SHARE = 0.25
_REPEATED = "FILL(running, REPEAT)"
_RUNNING_ON_ECS = f"FILL({_REPEATED}, 0)"
"""ECS may publish no value while no task runs. FILL gives the previous value for a late one, and 0 without any."""
_AT_LEAST = "GreaterThanOrEqualToThreshold"
_BELOW = "LessThanThreshold"


class MetricQuery(NamedTuple):
    """A statistic of a metric."""

    metric: CloudWatchMetric
    statistic: str = "Maximum"


class MathQuery(NamedTuple):
    """An expression and its metrics by id, and the id of the expression, which is the result."""

    parts: Mapping[str, str | MetricQuery]
    returned: str


class StepAdjustment(NamedTuple):
    """One step: its bounds as distances from the alarm's threshold (``None`` is infinity), and the adjustment."""

    lower: float | None
    upper: float | None
    adjustment: int


class StepPolicy(NamedTuple):
    """A step scaling policy on the maximum of the alarm's recent values."""

    name: str
    steps: tuple[StepAdjustment, ...]
    cooldown_s: int
    adjustment: str = "ChangeInCapacity"


class TrackingPolicy(NamedTuple):
    """A target tracking policy, for which AWS makes the alarms."""

    name: str
    query: MetricQuery | MathQuery
    target: float
    out_cooldown_s: int
    in_cooldown_s: int


class Alarm(NamedTuple):
    """An alarm that breaches in ``needed`` of ``of`` periods. ``policy`` is the policy that it invokes."""

    name: str
    query: MetricQuery | MathQuery
    comparison: str
    threshold: float
    needed: int
    of: int
    period_s: int = 60
    treatment: str = "missing"
    policy: str | None = None


def autoscaling(asked: Scaling) -> str:
    """The recipe as a CloudFormation template."""
    policies, alarms = ({each.name: each for each in parts} for parts in _parts(asked))
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


def _parts(asked: Scaling) -> tuple[list[StepPolicy | TrackingPolicy], list[Alarm]]:
    """The policies and alarms that the template of a recipe defines, in the template's order."""
    policies: list[StepPolicy | TrackingPolicy] = []
    alarms: list[Alarm] = []
    if asked.recipe == "from-zero":
        policies.append(
            StepPolicy("WakeUpPolicy", (StepAdjustment(0, None, 1),), _out_cooldown_s(asked), "ExactCapacity")
        )
        alarms.append(_wake_up(asked))
    if asked.recipe == "step":
        lag = _threshold(asked)
        # Add 1 task below 2 times the threshold, 2 tasks below 4 times the threshold, and 4 tasks above that.
        out = StepAdjustment(0, lag, 1), StepAdjustment(lag, 3 * lag, 2), StepAdjustment(3 * lag, None, 4)
        policies.append(StepPolicy("LagHighPolicy", out, _out_cooldown_s(asked)))
        policies.append(StepPolicy("LagLowPolicy", (StepAdjustment(None, 0, -1),), _in_cooldown_s(asked)))
        alarms += [_lag_high(asked), _lag_low(asked)]
    else:
        query = _tracked_from_zero(asked) if asked.recipe == "from-zero" else _tracked(asked)
        cooldowns = _out_cooldown_s(asked), _in_cooldown_s(asked)
        policies.append(TrackingPolicy("LagTracking", query, _threshold(asked), *cooldowns))
    alarms += [_status(asked), _no_lag(asked), _max_capacity(asked)]
    if asked.shared:
        alarms.append(_heartbeat(asked))
    return policies, alarms


def _out_cooldown_s(asked: Scaling) -> int:
    """The cooldown after a scale-out. In an Auto Scaling group it is the warm-up time of a new instance."""
    if asked.scale_out_cooldown is not None:
        return asked.scale_out_cooldown
    return 60 if asked.on_ecs else 300


def _in_cooldown_s(asked: Scaling) -> int:
    return 300 if asked.scale_in_cooldown is None else asked.scale_in_cooldown


def _threshold(asked: Scaling) -> float:
    threshold: float = getattr(asked, asked.measure)
    return threshold


def _lag(asked: Scaling, name: str) -> CloudWatchMetric:
    return lag_of(asked.namespace, asked.burrow_cluster, asked.group, name)


def _running(asked: Scaling, statistic: str = "Average") -> MetricQuery:
    """The number of running tasks or instances.

    A running task has one sample of ``CPUUtilization`` a minute (ECS Developer Guide, "Service RUNNING task count").
    """
    if asked.counts_samples:
        return MetricQuery(utilization_of(asked.ecs_cluster, asked.service), "SampleCount")
    return MetricQuery(running_of(asked.ecs_cluster, asked.service, asked.asg_name), statistic)


def _measured(asked: Scaling) -> CloudWatchMetric:
    return _lag(asked, asked.measured)


def _tracked(asked: Scaling) -> MetricQuery | MathQuery:
    measured = _measured(asked)
    if asked.measure == "max_lag_seconds":
        return MetricQuery(measured)
    metrics = {**_with_points(measured), "running": _running(asked)}
    return MathQuery({"backlog": _per_task(asked, "running"), **metrics}, "backlog")


def _tracked_from_zero(asked: Scaling) -> MathQuery:
    """Return the query of `_tracked`, but with the target as its value while no task runs.

    While no task runs, a lag only means that no task reads. If this lag counted later, it would start the maximum
    number of tasks. If there was no value instead, AlarmLow would continue with older points and stop the new task.
    """
    measured, target = _measured(asked), jinja_templates.number(_threshold(asked))
    by_age = asked.measure == "max_lag_seconds"
    running = _utilization(asked) if by_age and asked.on_ecs else _running(asked)
    asleep = f"{_RUNNING_ON_ECS if asked.on_ecs else _REPEATED} < 1"
    # The lag is the last argument of IF, because a missing last argument gives no value. A missing second argument
    # gives 0 (CloudWatch User Guide, "Using IF expressions").
    text = f"IF({asleep}, {target}, {'lag' if by_age else _per_task(asked, _REPEATED)})"
    lag = {"lag": MetricQuery(measured)} if by_age else _with_points(measured)
    return MathQuery({"held": text, **lag, "running": running}, "held")


def _per_task(asked: Scaling, running: str) -> str:
    """The lag of each task. If the lag has no point, the lag of each task has no value.

    With a resolution of 20 seconds, a task has three samples a minute. More samples than the largest number of tasks
    show this. Below that, the lag of each task seems to be a third, and the recipe is slower until it sees more.

    points / points is 1 if the lag has a point. This factor is in the divisor: if a missing factor is read as 0 there,
    the division by 0 gives no value. In the dividend, a missing factor could be read as a lag of 0.
    """
    samples_per_task = f" / IF({asked.max_tasks} < {running}, 3, 1)" if asked.counts_samples else ""
    return f"lag / ({running}{samples_per_task} * points / points)"


def _with_points(measured: CloudWatchMetric) -> dict[str, MetricQuery]:
    return {"lag": MetricQuery(measured), "points": MetricQuery(measured, "SampleCount")}


def _utilization(asked: Scaling) -> MetricQuery:
    """Whether any task runs. It is not the number of tasks, because a task can have several points a minute."""
    return MetricQuery(utilization_of(asked.ecs_cluster, asked.service), "SampleCount")


def _wake_up(asked: Scaling) -> Alarm:
    """The alarm for unread messages while no task runs."""
    if asked.on_ecs:
        text = f"IF({_RUNNING_ON_ECS} < 1, lag, 0)"
        running = {"running": _utilization(asked)}
    else:
        text = "IF(running < 1, lag / (counted / counted), 0)"
        running = {"running": _running(asked, "Maximum"), "counted": _running(asked, "SampleCount")}
    return Alarm(
        "WakeUpAlarm",
        MathQuery({"unread": text, "lag": MetricQuery(_lag(asked, "Lag")), **running}, "unread"),
        _AT_LEAST,
        asked.wake_up_lag,
        needed=3,
        of=3,
        policy="WakeUpPolicy",
    )


def _lag_high(asked: Scaling) -> Alarm:
    return Alarm(
        "LagHighAlarm",
        MetricQuery(_measured(asked)),
        _AT_LEAST,
        _threshold(asked),
        period_s=10 if asked.high_resolution else 60,
        needed=3 if asked.high_resolution else 2,
        of=3,
        policy="LagHighPolicy",
    )


def _lag_low(asked: Scaling) -> Alarm:
    """The alarm for a low lag. With a minimum of 0 tasks, the threshold is 0: without a task, nothing reads the rest.

    Missing points do not count as low. With ``missing``, a few low points before a silence would be enough for an alarm
    (CloudWatch User Guide, "Avoiding premature transitions to alarm state").
    """
    return Alarm(
        "LagLowAlarm",
        MetricQuery(_measured(asked)),
        "LessThanOrEqualToThreshold",
        _threshold(asked) * _LOW_SHARE if asked.least else 0,
        needed=15,
        of=15,
        treatment="notBreaching",
        policy="LagLowPolicy",
    )


def _status(asked: Scaling) -> Alarm:
    """The alarm for a group in ERR. It triggers no policy: more tasks do not help a partition that is stuck.

    From zero, a group is in ERR while it sleeps with unread messages, so the alarm waits until a task has started.
    """
    minutes = 5 if asked.least else 15
    return Alarm(
        "StatusAlarm", MetricQuery(_lag(asked, "Status")), _AT_LEAST, Status.ERR.value, needed=minutes, of=minutes
    )


def _no_lag(asked: Scaling) -> Alarm:
    """The alarm for a group without lag in CloudWatch. It triggers no policy. No lag is below 0, only silence breaches.

    The heartbeat belongs to the whole Kafka cluster. It does not show a wrong name, or a group that is not published.
    """
    return Alarm("NoLagAlarm", MetricQuery(_measured(asked)), _BELOW, 0, needed=15, of=15, treatment="breaching")


def _max_capacity(asked: Scaling) -> Alarm:
    """The alarm for the maximum capacity. It triggers no policy."""
    return Alarm("MaxCapacityAlarm", _running(asked, "Maximum"), _AT_LEAST, asked.max_tasks, needed=15, of=15)


def _heartbeat(asked: Scaling) -> Alarm:
    """The alarm for a silent Karrot or Burrow. It triggers no policy."""
    return Alarm(
        "HeartbeatAlarm",
        MetricQuery(heartbeat_of(asked.namespace, asked.burrow_cluster)),
        _BELOW,
        1,
        needed=5,
        of=5,
        treatment="breaching",
    )
