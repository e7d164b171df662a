"""Makes a recipe's policies and alarms for its templates and `karrot simulate`; docs/autoscaling.md explains them."""

from collections.abc import Mapping
from typing import NamedTuple

from karrot.autoscaling.alarm_model import Alarm, AlarmState, Comparison, Treatment
from karrot.autoscaling.metric_math_evaluator import Expression, Gaps, MathQuery
from karrot.autoscaling.metric_statistics import MetricIdentity, MetricQuery
from karrot.autoscaling.policies import (
    LOW_SHARE_OF_INSTANCES,
    LOW_SHARE_OF_TASKS,
    Adjustment,
    ScaleIn,
    StepAdjustment,
    StepPolicy,
    TrackingPolicy,
)
from karrot.autoscaling.scalable_target import Stack
from karrot.event import Status
from karrot.render import jinja_templates
from karrot.render.cloudwatch_metric_names import CloudWatchMetric, heartbeat_of, lag_of, running_of, utilization_of
from karrot.render.scaling_recipe import Scaling

_LOW_SHARE = 0.25
_REPEATED = "FILL(running, REPEAT)"
_RUNNING_ON_ECS = f"FILL({_REPEATED}, 0)"
"""ECS may publish no value while no task runs. FILL gives the previous value for a late one, and 0 without any."""


class StackParts(NamedTuple):
    """Policies and alarms by their logical ids in a template, in the template's order."""

    policies: Mapping[str, StepPolicy | TrackingPolicy]
    alarms: Mapping[str, Alarm]


def stack_of(
    asked: Scaling, *, gaps: Gaps = Gaps.ZERO, scale_in: ScaleIn | None = None, activity_s: float = 0
) -> Stack:
    """A model of the rendered stack and AWS's own alarms, in which a scale-out takes ``activity_s``.

    ``gaps`` and ``scale_in`` decide undocumented behaviour. Without ``scale_in``, tasks are removed one by one, and
    instances in proportion, as the EC2 guide describes.
    """
    if scale_in is None:
        scale_in = ScaleIn.ONE if asked.on_ecs else ScaleIn.PROPORTIONAL
    policies, alarms = parts_of(asked, gaps=gaps, scale_in=scale_in)
    made_by_aws = [
        alarm for policy in policies.values() if isinstance(policy, TrackingPolicy) for alarm in policy.alarms()
    ]
    return Stack(
        policies.values(),
        [*alarms.values(), *made_by_aws],
        minimum=asked.least,
        maximum=asked.max_tasks,
        scale_out_blocks_scale_in=not asked.on_ecs,
        activity_s=activity_s,
        minimum_at=asked.least_at if asked.schedule else None,
    )


def parts_of(asked: Scaling, *, gaps: Gaps = Gaps.ZERO, scale_in: ScaleIn = ScaleIn.ONE) -> StackParts:
    """The policies and alarms that the template of a recipe defines."""
    policies: list[StepPolicy | TrackingPolicy] = []
    alarms: list[Alarm] = []
    if asked.recipe == "from-zero":
        policies.append(_step_policy(asked, "WakeUpPolicy", StepAdjustment(0, None, 1), adjustment=Adjustment.EXACT))
        alarms.append(_wake_up(asked, gaps))
    if asked.recipe == "step":
        lag = _threshold(asked)
        # Add 1 task below 2 times the threshold, 2 tasks below 4 times the threshold, and 4 tasks above that.
        out = StepAdjustment(0, lag, 1), StepAdjustment(lag, 3 * lag, 2), StepAdjustment(3 * lag, None, 4)
        policies.append(_step_policy(asked, "LagHighPolicy", *out))
        policies.append(_step_policy(asked, "LagLowPolicy", StepAdjustment(None, 0, -1)))
        alarms += [_lag_high(asked), _lag_low(asked)]
    else:
        policies.append(_tracking_policy(asked, gaps, scale_in))
    alarms += [_status(asked), _no_lag(asked), _max_capacity(asked)]
    if asked.shared:
        alarms.append(_heartbeat(asked))
    return StackParts({each.name: each for each in policies}, {each.name: each for each in alarms})


def _step_policy(
    asked: Scaling, name: str, *steps: StepAdjustment, adjustment: Adjustment = Adjustment.CHANGE
) -> StepPolicy:
    cooldown_s = _out_cooldown_s(asked) if steps[0].adjustment > 0 else _in_cooldown_s(asked)
    return StepPolicy(
        name,
        adjustment,
        steps,
        out_cooldown_s=cooldown_s,
        in_cooldown_s=cooldown_s if asked.on_ecs else 0,
    )


def _tracking_policy(asked: Scaling, gaps: Gaps, scale_in: ScaleIn) -> TrackingPolicy:
    return TrackingPolicy(
        "LagTracking",
        _tracked_from_zero(asked, gaps) if asked.recipe == "from-zero" else _tracked(asked, gaps),
        _threshold(asked),
        out_cooldown_s=_out_cooldown_s(asked),
        in_cooldown_s=_in_cooldown_s(asked) if asked.on_ecs else 0,
        scale_in=scale_in,
        low_share=LOW_SHARE_OF_TASKS if asked.on_ecs else LOW_SHARE_OF_INSTANCES,
    )


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


def _query(metric: CloudWatchMetric, statistic: str = "Maximum") -> MetricQuery:
    return MetricQuery(MetricIdentity.of(*metric), statistic)


def _lag(asked: Scaling, name: str) -> CloudWatchMetric:
    return lag_of(asked.namespace, asked.burrow_cluster, asked.group, name)


def _running(asked: Scaling, statistic: str = "Average") -> MetricQuery:
    """The number of running tasks or instances.

    A running task has one sample of ``CPUUtilization`` a minute (ECS Developer Guide, "Service RUNNING task count").
    """
    if asked.counts_samples:
        return _query(utilization_of(asked.ecs_cluster, asked.service), "SampleCount")
    return _query(running_of(asked.ecs_cluster, asked.service, asked.asg_name), statistic)


def _measured(asked: Scaling) -> CloudWatchMetric:
    return _lag(asked, asked.measured)


def _tracked(asked: Scaling, gaps: Gaps) -> MetricQuery | MathQuery:
    measured = _measured(asked)
    if asked.measure == "max_lag_seconds":
        return _query(measured)
    return _math("backlog", _per_task(asked, "running"), {**_with_points(measured), "running": _running(asked)}, gaps)


def _tracked_from_zero(asked: Scaling, gaps: Gaps) -> MathQuery:
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
    lag = {"lag": _query(measured)} if by_age else _with_points(measured)
    return _math("held", text, {**lag, "running": running}, gaps)


def _math(name: str, text: str, metrics: Mapping[str, MetricQuery], gaps: Gaps) -> MathQuery:
    return MathQuery({name: Expression.parse(text), **metrics}, name, gaps)


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
    return {"lag": _query(measured), "points": _query(measured, "SampleCount")}


def _utilization(asked: Scaling) -> MetricQuery:
    """Whether any task runs. It is not the number of tasks, because a task can have several points a minute."""
    return _query(utilization_of(asked.ecs_cluster, asked.service), "SampleCount")


def _wake_up(asked: Scaling, gaps: Gaps) -> Alarm:
    """The alarm for unread messages while no task runs."""
    if asked.on_ecs:
        text = f"IF({_RUNNING_ON_ECS} < 1, lag, 0)"
        running = {"running": _utilization(asked)}
    else:
        text = "IF(running < 1, lag / (counted / counted), 0)"
        running = {"running": _running(asked, "Maximum"), "counted": _running(asked, "SampleCount")}
    return Alarm(
        "WakeUpAlarm",
        _math("unread", text, {"lag": _query(_lag(asked, "Lag")), **running}, gaps),
        Comparison.AT_LEAST,
        asked.wake_up_lag,
        evaluation_periods=3,
        datapoints_to_alarm=3,
        actions=_calls("WakeUpPolicy"),
    )


def _lag_high(asked: Scaling) -> Alarm:
    return Alarm(
        "LagHighAlarm",
        _query(_measured(asked)),
        Comparison.AT_LEAST,
        _threshold(asked),
        period_s=10 if asked.high_resolution else 60,
        evaluation_periods=3,
        datapoints_to_alarm=3 if asked.high_resolution else 2,
        actions=_calls("LagHighPolicy"),
    )


def _lag_low(asked: Scaling) -> Alarm:
    """The alarm for a low lag. With a minimum of 0 tasks, the threshold is 0: without a task, nothing reads the rest.

    Missing points do not count as low. With ``missing``, a few low points before a silence would be enough for an alarm
    (CloudWatch User Guide, "Avoiding premature transitions to alarm state").
    """
    return Alarm(
        "LagLowAlarm",
        _query(_measured(asked)),
        Comparison.AT_MOST,
        _threshold(asked) * _LOW_SHARE if asked.least else 0,
        evaluation_periods=15,
        datapoints_to_alarm=15,
        treatment=Treatment.NOT_BREACHING,
        actions=_calls("LagLowPolicy"),
    )


def _status(asked: Scaling) -> Alarm:
    """The alarm for a group in ERR. It triggers no policy: more tasks do not help a partition that is stuck.

    From zero, a group is in ERR while it sleeps with unread messages, so the alarm waits until a task has started.
    """
    minutes = 5 if asked.least else 15
    return Alarm(
        "StatusAlarm",
        _query(_lag(asked, "Status")),
        Comparison.AT_LEAST,
        Status.ERR.value,
        evaluation_periods=minutes,
        datapoints_to_alarm=minutes,
    )


def _no_lag(asked: Scaling) -> Alarm:
    """The alarm for a group without lag in CloudWatch. It triggers no policy. No lag is below 0, only silence breaches.

    The heartbeat belongs to the whole Kafka cluster. It does not show a wrong name, or a group that is not published.
    """
    return Alarm(
        "NoLagAlarm",
        _query(_measured(asked)),
        Comparison.BELOW,
        0,
        evaluation_periods=15,
        datapoints_to_alarm=15,
        treatment=Treatment.BREACHING,
    )


def _max_capacity(asked: Scaling) -> Alarm:
    """The alarm for the maximum capacity. It triggers no policy."""
    return Alarm(
        "MaxCapacityAlarm",
        _running(asked, "Maximum"),
        Comparison.AT_LEAST,
        asked.max_tasks,
        evaluation_periods=15,
        datapoints_to_alarm=15,
    )


def _heartbeat(asked: Scaling) -> Alarm:
    """The alarm for a silent Karrot or Burrow. It triggers no policy."""
    return Alarm(
        "HeartbeatAlarm",
        _query(heartbeat_of(asked.namespace, asked.burrow_cluster)),
        Comparison.BELOW,
        1,
        evaluation_periods=5,
        datapoints_to_alarm=5,
        treatment=Treatment.BREACHING,
    )


def _calls(policy: str) -> dict[AlarmState, tuple[str, ...]]:
    return {AlarmState.ALARM: (policy,)}
