"""``karrot render ecs-autoscaling``: policies and alarms that scale on the lag of one consumer group.

``docs/autoscaling.md`` tells why each number is what it is.
"""

import re
from hashlib import sha256
from typing import Any, NamedTuple

from karrot.render import formats
from karrot.render.metric_names import CloudWatchMetric, heartbeat_of, lag_of, running_of, utilization_of
from karrot.render.scaling_recipe import FORMATS, Scaling
from karrot.render.templates import environment
from karrot.reporters.cloudwatch.naming import dimension_value

_TEMPLATES = dict(zip(FORMATS, ("ecs/autoscaling.yaml.j2", "ecs/autoscaling.tf.j2"), strict=True))
_LONGEST_NAME = 255
_HIGH, _LOW = "GreaterThanOrEqualToThreshold", "LessThanOrEqualToThreshold"
_LOW_SHARE = 0.25
_REPEATED = "FILL(running, REPEAT)"
_RUNNING_ON_ECS = f"FILL({_REPEATED}, 0)"
"""ECS may say nothing where nothing runs: a late value is the one before it, none in the whole range is 0."""


class TemplateQuery(NamedTuple):
    """A metric by the name that an expression has for it."""

    id: str
    metric: CloudWatchMetric
    statistic: str = "Maximum"


class TemplateExpression(NamedTuple):
    """Metric math."""

    id: str
    text: str


class Tracking(NamedTuple):
    """What target tracking holds: one metric, or an expression over several."""

    metric: CloudWatchMetric
    expression: TemplateExpression | None = None
    metrics: tuple[TemplateQuery, ...] = ()


class TemplateStep(NamedTuple):
    """A change of capacity; its bounds are relative to the alarm's threshold."""

    change: int
    lower: float | None = None
    upper: float | None = None


class TemplateAlarm(NamedTuple):
    """An alarm on a metric, or on an expression over several; without a policy it only tells."""

    id: str
    description: str
    metric: CloudWatchMetric
    threshold: float
    periods: int
    datapoints: int
    policy: str | None = None
    comparison: str = _HIGH
    missing: str = "missing"
    period: int = 60
    expression: TemplateExpression | None = None
    metrics: tuple[TemplateQuery, ...] = ()
    of: str = ""


def autoscaling(asked: Scaling, output: str) -> str:
    """The recipe as a CloudFormation template or as Terraform; ``output`` is one of `FORMATS`."""
    text = environment().get_template(_TEMPLATES[output]).render(_context(asked))
    return formats.aligned(text) if output == "terraform" else text


def _context(asked: Scaling) -> dict[str, Any]:
    steps = asked.recipe == "step"
    return {
        "asked": asked,
        "unit": "task" if asked.on_ecs else "instance",
        "needed": _needed(asked),
        "names": _Names(asked),
        "label": _label(asked),
        "resource_id": f"service/{asked.ecs_cluster}/{asked.service}",
        "cooldowns": _cooldowns(asked),
        "target": getattr(asked, asked.measure),
        "tracking": None if steps else _tracking(asked),
        "wake_up": _wake_up(asked) if asked.recipe == "from-zero" else None,
        "wake_up_steps": [TemplateStep(1, lower=0)],
        "high": _lag_high(asked) if steps else None,
        "high_steps": _steps_out(getattr(asked, asked.measure)),
        "low": _lag_low(asked) if steps else None,
        "low_steps": [TemplateStep(-1, upper=0)],
        "max_capacity": _max_capacity(asked),
        "heartbeat": _heartbeat(asked),
    }


def _needed(asked: Scaling) -> list[str]:
    seconds = ["LagSeconds"] if asked.measure == "max_lag_seconds" else []
    messages = ["Lag"] if asked.recipe == "from-zero" or not seconds else []
    return messages + seconds


def _cooldowns(asked: Scaling) -> dict[str, int]:
    """Seconds; of an Auto Scaling group the first is the time that a new instance needs to help."""
    usual = 60 if asked.on_ecs else 300
    return {
        "out": usual if asked.scale_out_cooldown is None else asked.scale_out_cooldown,
        "in": 300 if asked.scale_in_cooldown is None else asked.scale_in_cooldown,
    }


def _lag(asked: Scaling, name: str) -> CloudWatchMetric:
    return lag_of(asked.namespace, asked.burrow_cluster, asked.group, name)


def _running(asked: Scaling) -> CloudWatchMetric:
    return running_of(asked.ecs_cluster, asked.service, asked.asg_name)


def _measured(asked: Scaling) -> CloudWatchMetric:
    return _lag(asked, "LagSeconds" if asked.measure == "max_lag_seconds" else "Lag")


def _tracking(asked: Scaling) -> Tracking:
    if asked.recipe == "from-zero":
        return _tracking_from_zero(asked)
    measured = _measured(asked)
    if asked.measure == "max_lag_seconds":
        return Tracking(measured)
    running = TemplateQuery("running", _running(asked), "Average")
    return Tracking(measured, TemplateExpression("backlog", _per_task("running")), (*_with_points(measured), running))


def _tracking_from_zero(asked: Scaling) -> Tracking:
    """The same, but while nothing runs the measure stands at its target.

    A lag only says then that nobody reads: counted as soon as one runs, it would start as many as are allowed. And
    with no value at all AlarmLow would go on to stand on the points of before, and stop what has just been started.
    """
    measured, target = _measured(asked), formats.number(getattr(asked, asked.measure))
    by_age = asked.measure == "max_lag_seconds"
    running = _utilization(asked) if by_age and asked.on_ecs else TemplateQuery("running", _running(asked), "Average")
    asleep = f"{_RUNNING_ON_ECS if asked.on_ecs else _REPEATED} < 1"
    # The lag stands last: where IF takes its last argument a missing value leaves none, where it takes the second one
    # a missing value is a 0 (CloudWatch User Guide, "Using IF expressions").
    text = f"IF({asleep}, {target}, {'lag' if by_age else _per_task(_REPEATED)})"
    lag = (TemplateQuery("lag", measured),) if by_age else _with_points(measured)
    return Tracking(measured, TemplateExpression("held", text), (*lag, running))


def _per_task(running: str) -> str:
    """The lag of each task. Without a point of the lag there is no value.

    points / points is 1 where lag has a point. It stands below the line, because there a missing value leaves none
    whichever way it is read: as 0 it divides by 0. Above the line it could be read as a lag of 0.
    """
    return f"lag / ({running} * points / points)"


def _with_points(measured: CloudWatchMetric) -> tuple[TemplateQuery, TemplateQuery]:
    return TemplateQuery("lag", measured), TemplateQuery("points", measured, "SampleCount")


def _utilization(asked: Scaling) -> TemplateQuery:
    """Whether any task runs. How many do it does not tell: a task may have several points a minute."""
    return TemplateQuery("running", utilization_of(asked.ecs_cluster, asked.service), "SampleCount")


def _wake_up(asked: Scaling) -> TemplateAlarm:
    lag = _lag(asked, "Lag")
    if asked.on_ecs:
        text = f"IF({_RUNNING_ON_ECS} < 1, lag, 0)"
        metrics: tuple[TemplateQuery, ...] = (TemplateQuery("lag", lag), _utilization(asked))
    else:
        running = _running(asked)
        text = "IF(running < 1, lag / (counted / counted), 0)"
        metrics = (
            TemplateQuery("lag", lag),
            TemplateQuery("running", running),
            TemplateQuery("counted", running, "SampleCount"),
        )
    return TemplateAlarm(
        "WakeUpAlarm",
        "Messages are unread and nothing runs to read them",
        lag,
        threshold=asked.wake_up_lag,
        periods=3,
        datapoints=3,
        policy="WakeUpPolicy",
        expression=TemplateExpression("unread", text),
        metrics=metrics,
    )


def _lag_high(asked: Scaling) -> TemplateAlarm:
    threshold: float = getattr(asked, asked.measure)
    alarm = TemplateAlarm(
        "LagHighAlarm", "The lag is too high", _measured(asked), threshold, 3, 2, "LagHighPolicy", of=_unit(asked)
    )
    return alarm._replace(period=10, datapoints=3) if asked.high_resolution else alarm


def _lag_low(asked: Scaling) -> TemplateAlarm:
    """Down to zero only from a lag of zero: nobody would read the rest.

    A missing point is not a low one: with ``missing`` a few low points before a silence would do (CloudWatch User
    Guide, "Avoiding premature transitions to alarm state").
    """
    return TemplateAlarm(
        "LagLowAlarm",
        "The lag has been low for long",
        _measured(asked),
        threshold=getattr(asked, asked.measure) * _LOW_SHARE if asked.least else 0,
        periods=15,
        datapoints=15,
        policy="LagLowPolicy",
        comparison=_LOW,
        missing="notBreaching",
        of=_unit(asked),
    )


def _unit(asked: Scaling) -> str:
    return " seconds" if asked.measure == "max_lag_seconds" else " messages"


def _steps_out(threshold: float) -> list[TemplateStep]:
    """One more below twice the threshold, two below four times, else four."""
    return [
        TemplateStep(1, lower=0, upper=threshold),
        TemplateStep(2, lower=threshold, upper=3 * threshold),
        TemplateStep(4, lower=3 * threshold),
    ]


def _max_capacity(asked: Scaling) -> TemplateAlarm:
    description = "As many run as are allowed: the lag may grow on"
    return TemplateAlarm("MaxCapacityAlarm", description, _running(asked), asked.max_tasks, 15, 15)


def _heartbeat(asked: Scaling) -> TemplateAlarm:
    return TemplateAlarm(
        "HeartbeatAlarm",
        "Karrot or Burrow is silent: nothing is scaled on lag until both are back",
        heartbeat_of(asked.namespace, asked.burrow_cluster),
        threshold=1,
        periods=5,
        datapoints=5,
        comparison="LessThanThreshold",
        missing="breaching",
    )


class _Names:
    """What policies and alarms are called, by their logical id: unlike for each service, group and Burrow cluster."""

    def __init__(self, asked: Scaling) -> None:
        self._scaled = f"{asked.ecs_cluster}/{asked.service}" if asked.on_ecs else str(asked.asg_name)
        self._heard = dimension_value(asked.burrow_cluster).text

    def __getitem__(self, logical_id: str) -> str:
        words = re.sub(r"(?<!^)(?=[A-Z])", "-", logical_id).lower()
        of = self._heard if logical_id == "HeartbeatAlarm" else self._scaled
        return _within(f"karrot/{of}/{words}", _LONGEST_NAME)


def _label(asked: Scaling) -> str:
    """What Terraform's resources are called, unlike for each service: its names know no more than these characters."""
    plain = f"karrot_{asked.ecs_cluster}_{asked.service}" if asked.on_ecs else f"karrot_{asked.asg_name}"
    made = re.sub(r"[^A-Za-z0-9_-]", "_", plain)
    return made if made == plain else f"{made}_{_digest(plain)}"


def _within(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 9]}~{_digest(text)}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]
