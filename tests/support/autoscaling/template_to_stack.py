"""Reads a rendered CloudFormation template into the model's stack, as CloudFormation and AWS would."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from support.autoscaling.alarm_model import Alarm, AlarmState, Comparison, Treatment
from support.autoscaling.metric_math_evaluator import Expression, Gaps, MathQuery
from support.autoscaling.metric_statistics import MetricIdentity, MetricQuery
from support.autoscaling.policies import (
    LOW_SHARE_OF_INSTANCES,
    Adjustment,
    Policy,
    ScaleIn,
    StepAdjustment,
    StepPolicy,
    TrackingPolicy,
)
from support.autoscaling.scalable_target import Stack

__all__ = ["parse_stack"]

_ECS_POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
_GROUP_POLICY = "AWS::AutoScaling::ScalingPolicy"
_DEFAULT_COOLDOWN_S = 300
_ACTIONS = {
    AlarmState.ALARM: "AlarmActions",
    AlarmState.OK: "OKActions",
    AlarmState.INSUFFICIENT_DATA: "InsufficientDataActions",
}

_POLICY_KEYS = {"PolicyName", "PolicyType", "ScalingTargetId"}
_STEP_KEYS = {"AdjustmentType", "Cooldown", "MetricAggregationType", "StepAdjustments"}
_TRACKING_KEYS = {"CustomizedMetricSpecification", "ScaleInCooldown", "ScaleOutCooldown", "TargetValue"}
_GROUP_KEYS = {"AutoScalingGroupName", "EstimatedInstanceWarmup", "PolicyType"}
_ALARM_KEYS = {
    *_ACTIONS.values(),
    "AlarmDescription",
    "AlarmName",
    "ComparisonOperator",
    "DatapointsToAlarm",
    "Dimensions",
    "EvaluationPeriods",
    "MetricName",
    "Metrics",
    "Namespace",
    "Period",
    "Statistic",
    "Threshold",
    "TreatMissingData",
}

Node = Mapping[str, Any]


def parse_stack(
    template: Node,
    *,
    limits: tuple[int, int] | None = None,
    gaps: Gaps = Gaps.ZERO,
    scale_in: ScaleIn = ScaleIn.ONE,
    activity_s: float = 0,
) -> Stack:
    """Return the stack of a template. A template lacks its Auto Scaling group, so ``limits`` are the group's own."""
    policies = [
        *(_ecs_policy(name, node, gaps, scale_in) for name, node in _of_type(template, _ECS_POLICY)),
        *(_group_policy(name, node, gaps, scale_in) for name, node in _of_type(template, _GROUP_POLICY)),
    ]
    assert policies
    names = {policy.name for policy in policies}
    alarms = [_alarm(name, node, names, gaps) for name, node in _of_type(template, "AWS::CloudWatch::Alarm")]
    for policy in policies:
        alarms += policy.alarms() if isinstance(policy, TrackingPolicy) else ()
    least, most = limits or _limits(template)
    is_group = any(_of_type(template, _GROUP_POLICY))
    return Stack(
        policies,
        alarms,
        minimum=least,
        maximum=most,
        scale_out_blocks_scale_in=is_group,
        activity_s=activity_s,
        minimum_at=_minimum_at(template, least),
    )


def _minimum_at(template: Node, least: int) -> Callable[[float], int] | None:
    """Return the minimum at a time: that of the scheduled action that was due last."""
    actions: list[tuple[_Cron, str, int]] = [
        (_Cron.of_tasks(each["Schedule"]), each["Timezone"], each["ScalableTargetAction"]["MinCapacity"])
        for _, target in _of_type(template, "AWS::ApplicationAutoScaling::ScalableTarget")
        for each in target.get("ScheduledActions", ())
    ] + [
        (_Cron.of_instances(each["Recurrence"]), each["TimeZone"], each["MinSize"])
        for _, each in _of_type(template, "AWS::AutoScaling::ScheduledAction")
    ]

    def minimum_at(at_s: float) -> int:
        return min(((cron.minutes_since(at_s, zone), minimum) for cron, zone, minimum in actions))[1]

    assert all(minimum == least for _, _, minimum in actions[1::2])
    return minimum_at if actions else None


class _Cron(NamedTuple):
    """A minute of the day on some days of the week, 0 is Monday."""

    minute: int
    days: frozenset[int]

    @classmethod
    def of_tasks(cls, text: str) -> "_Cron":
        match = re.fullmatch(r"cron\((\d+) (\d+) \? \* (\*|[A-Z,]+) \*\)", text)
        assert match
        names = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]
        days = names if match[3] == "*" else match[3].split(",")
        return cls(int(match[2]) * 60 + int(match[1]), frozenset(map(names.index, days)))

    @classmethod
    def of_instances(cls, text: str) -> "_Cron":
        match = re.fullmatch(r"(\d+) (\d+) \* \* (\*|[0-6,]+)", text)
        assert match
        days = range(7) if match[3] == "*" else map(int, match[3].split(","))
        return cls(int(match[2]) * 60 + int(match[1]), frozenset((day - 1) % 7 for day in days))

    def minutes_since(self, at_s: float, zone: str) -> int:
        """Return the minutes of the wall clock since this was last due."""
        local = datetime.fromtimestamp(at_s, ZoneInfo(zone))
        now = (local.weekday() * 24 + local.hour) * 60 + local.minute
        return min((now - day * 1440 - self.minute) % (7 * 1440) for day in self.days)


def _of_type(template: Node, kind: str) -> Iterator[tuple[str, Node]]:
    for name, resource in template["Resources"].items():
        if resource["Type"] == kind:
            yield name, resource["Properties"]


def _assert_known(node: Node, *known: set[str]) -> None:
    """A property that is not read here, such as ``ActionsEnabled``, would make the stack another one."""
    assert node.keys() <= set().union(*known)


def _limits(template: Node) -> tuple[int, int]:
    [(_, target)] = _of_type(template, "AWS::ApplicationAutoScaling::ScalableTarget")
    return target["MinCapacity"], target["MaxCapacity"]


def _ecs_policy(name: str, node: Node, gaps: Gaps, scale_in: ScaleIn) -> Policy:
    assert node["ScalingTargetId"] == {"Ref": "ScalableTarget"}
    if node["PolicyType"] == "TargetTrackingScaling":
        _assert_known(node, _POLICY_KEYS, {"TargetTrackingScalingPolicyConfiguration"})
        settings = node["TargetTrackingScalingPolicyConfiguration"]
        cooldowns = settings["ScaleOutCooldown"], settings["ScaleInCooldown"]
        return _tracking_policy(name, settings, cooldowns, gaps, scale_in)
    _assert_known(node, _POLICY_KEYS, {"StepScalingPolicyConfiguration"})
    settings = node["StepScalingPolicyConfiguration"]
    return _step_policy(name, settings, (settings["Cooldown"], settings["Cooldown"]))


def _group_policy(name: str, node: Node, gaps: Gaps, scale_in: ScaleIn) -> Policy:
    """Return an EC2 policy: its warm-up works like a cooldown of scale-outs elsewhere; scale-ins have none."""
    cooldowns = node.get("EstimatedInstanceWarmup", _DEFAULT_COOLDOWN_S), 0
    if node["PolicyType"] == "TargetTrackingScaling":
        _assert_known(node, _GROUP_KEYS, {"TargetTrackingConfiguration"})
        tracking = _tracking_policy(name, node["TargetTrackingConfiguration"], cooldowns, gaps, scale_in)
        return replace(tracking, low_share=LOW_SHARE_OF_INSTANCES)
    settings = {key: value for key, value in node.items() if key not in _GROUP_KEYS}
    return _step_policy(name, settings, cooldowns)


def _tracking_policy(
    name: str, settings: Node, cooldowns: tuple[int, int], gaps: Gaps, scale_in: ScaleIn
) -> TrackingPolicy:
    _assert_known(settings, _TRACKING_KEYS)
    query = _query(settings["CustomizedMetricSpecification"], gaps)
    return TrackingPolicy(name, query, settings["TargetValue"], *cooldowns, scale_in=scale_in)


def _step_policy(name: str, settings: Node, cooldowns: tuple[int, int]) -> StepPolicy:
    _assert_known(settings, _STEP_KEYS)
    steps = tuple(
        StepAdjustment(
            step.get("MetricIntervalLowerBound"), step.get("MetricIntervalUpperBound"), step["ScalingAdjustment"]
        )
        for step in settings["StepAdjustments"]
    )
    # PutScalingPolicy refuses steps with an overlap or a gap, and the outermost step needs one open side.
    assert all(before.upper == after.lower is not None for before, after in pairwise(steps))
    assert (steps[0].lower, steps[-1].upper) in [(0, None), (None, 0)]
    assert settings["MetricAggregationType"] == "Maximum"  # as the model has it
    return StepPolicy(name, Adjustment(settings["AdjustmentType"]), steps, *cooldowns)


def _alarm(name: str, node: Node, policies: set[str], gaps: Gaps) -> Alarm:
    _assert_known(node, _ALARM_KEYS)
    called = {
        state: tuple(action["Ref"] for action in node.get(key, ()) if isinstance(action, Mapping))
        for state, key in _ACTIONS.items()
    }
    assert {name for names in called.values() for name in names} <= policies
    return Alarm(
        name,
        _query(node, gaps),
        Comparison(node["ComparisonOperator"]),
        node["Threshold"],
        _period(node),
        node["EvaluationPeriods"],
        node["DatapointsToAlarm"],
        Treatment(node["TreatMissingData"]),
        {state: names for state, names in called.items() if names},
    )


def _period(node: Node) -> int:
    """Return the period of a plain alarm, or the common period of its metrics."""
    if "Period" in node:
        return int(node["Period"])
    [period] = {part["MetricStat"]["Period"] for part in node["Metrics"] if "MetricStat" in part}
    return int(period)


def _query(node: Node, gaps: Gaps) -> MetricQuery | MathQuery:
    if "Metrics" not in node:
        return _metric_query(node, node["Statistic"])
    parts = {part["Id"]: _part(part) for part in node["Metrics"]}
    [returned] = [part["Id"] for part in node["Metrics"] if part["ReturnData"]]
    assert all(part.names <= parts.keys() for part in parts.values() if isinstance(part, Expression))
    return MathQuery(parts, returned, gaps)


def _part(part: Node) -> MetricQuery | Expression:
    if "Expression" in part:
        return Expression.parse(part["Expression"])
    return _metric_query(part["MetricStat"]["Metric"], part["MetricStat"]["Stat"])


def _metric_query(node: Node, statistic: str) -> MetricQuery:
    dimensions = [(each["Name"], each["Value"]) for each in node["Dimensions"]]
    return MetricQuery(MetricIdentity.of(node["Namespace"], node["MetricName"], dimensions), statistic)
