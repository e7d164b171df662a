"""Reads a scaling stack from a CloudFormation template, so that what runs here is what would be deployed.

CloudFormation's functions are read in their long form, as far as a scaling template needs them. A reference to a
resource becomes its logical id, which is how alarms and policies find each other here.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

from karrot.autoscaling.alarms import Alarm, Comparison
from karrot.autoscaling.metric_math import Expression, Gaps, MathQuery
from karrot.autoscaling.metric_series import STATISTICS, MetricIdentity, MetricQuery, WatchedQuery
from karrot.autoscaling.missing_data import AlarmState, Treatment
from karrot.autoscaling.policies import (
    DEFAULT_COOLDOWN_S,
    Adjustment,
    Policy,
    ScaleIn,
    StepAdjustment,
    StepPolicy,
    TrackingPolicy,
    why_no_steps,
)
from karrot.autoscaling.scalable_target import Stack

_TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
_GROUP = "AWS::AutoScaling::AutoScalingGroup"
_ECS_POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
_GROUP_POLICY = "AWS::AutoScaling::ScalingPolicy"
_ALARM = "AWS::CloudWatch::Alarm"

_ACTIONS = {
    AlarmState.ALARM: "AlarmActions",
    AlarmState.OK: "OKActions",
    AlarmState.INSUFFICIENT_DATA: "InsufficientDataActions",
}

_Node = Mapping[str, Any]


class TemplateError(ValueError):
    """The template is not one that this model can run; the text says where and why."""


class Limits(NamedTuple):
    """The least and the most tasks (or instances)."""

    minimum: int
    maximum: int


class _Cooldowns(NamedTuple):
    out_s: int
    in_s: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """How to read what AWS does not document, beside the resources with their references resolved."""

    resources: Mapping[str, _Node]
    gaps: Gaps
    scale_in: ScaleIn
    extra_periods: int

    def of_type(self, kind: str) -> Iterator[tuple[str, _Node]]:
        for name, resource in self.resources.items():
            if resource.get("Type") == kind:
                yield name, resource.get("Properties", {})


def from_cloudformation(
    template: _Node,
    *,
    parameters: Mapping[str, Any] | None = None,
    limits: tuple[int, int] | None = None,
    gaps: Gaps = Gaps.ZERO,
    scale_in: ScaleIn = ScaleIn.ONE,
    extra_periods: int = 2,
) -> Stack:
    """The stack that a template describes; resources that scale nothing are passed over.

    ``limits`` stands in where the template names an Auto Scaling group that it does not make. The last three choose
    between readings that AWS leaves open: missing values in metric math, how much target tracking takes away at a
    time, how many periods beyond Evaluation Periods an alarm fetches. Raises `TemplateError` with a sentence.
    """
    reading = _Reading(_resources(template, parameters or {}), gaps, scale_in, extra_periods)
    least, most = limits or _limits(reading)
    policies = dict(_policies(reading))
    if not policies:
        raise TemplateError("the template has no scaling policy")
    alarms = list(_alarms(policies, reading))
    for policy in policies.values():
        alarms += policy.alarms(extra_periods) if isinstance(policy, TrackingPolicy) else ()
    of_group = any(reading.of_type(_GROUP_POLICY))
    return Stack(policies.values(), alarms, minimum=least, maximum=most, scale_out_blocks_scale_in=of_group)


def _resources(template: _Node, parameters: Mapping[str, Any]) -> Mapping[str, _Node]:
    declared = template.get("Parameters", {})
    unknown = sorted(parameters.keys() - declared.keys())
    if unknown:
        raise TemplateError(f"the template has no parameter {', '.join(unknown)}")
    values = {name: node["Default"] for name, node in declared.items() if "Default" in node} | dict(parameters)
    kinds = (_TARGET, _GROUP, _ECS_POLICY, _GROUP_POLICY, _ALARM)
    chosen = {name: node for name, node in template.get("Resources", {}).items() if node.get("Type") in kinds}
    found: dict[str, _Node] = {}
    for name, node in chosen.items():
        with _named(name):
            found[name] = resolved(node, values)
    return found


def _limits(reading: _Reading) -> Limits:
    found = [
        Limits(_number(node, smallest), _number(node, largest))
        for kind, smallest, largest in ((_TARGET, "MinCapacity", "MaxCapacity"), (_GROUP, "MinSize", "MaxSize"))
        for _, node in reading.of_type(kind)
    ]
    if len(found) != 1:
        raise TemplateError(f"the template has {len(found) or 'no'} scalable targets; one is modelled")
    return found[0]


def _policies(reading: _Reading) -> Iterator[tuple[str, Policy]]:
    for name, node in reading.of_type(_ECS_POLICY):
        with _named(name):
            yield name, _ecs_policy(name, node, reading)
    for name, node in reading.of_type(_GROUP_POLICY):
        with _named(name):
            yield name, _group_policy(name, node, reading)


def _ecs_policy(name: str, node: _Node, reading: _Reading) -> Policy:
    if node.get("PolicyType") == "TargetTrackingScaling":
        settings = node["TargetTrackingScalingPolicyConfiguration"]
        return _tracking_policy(name, settings, _cooldowns(settings, "ScaleOutCooldown", "ScaleInCooldown"), reading)
    settings = node["StepScalingPolicyConfiguration"]
    return _step_policy(name, settings, _cooldowns(settings, "Cooldown", "Cooldown"))


def _group_policy(name: str, node: _Node, reading: _Reading) -> Policy:
    """An EC2 policy: its warm-up does what a cooldown of scale-outs does elsewhere; scale-ins have none."""
    cooldowns = _Cooldowns(int(node.get("EstimatedInstanceWarmup", DEFAULT_COOLDOWN_S)), 0)
    match node.get("PolicyType"):
        case "TargetTrackingScaling":
            return _tracking_policy(name, node["TargetTrackingConfiguration"], cooldowns, reading)
        case "StepScaling":
            return _step_policy(name, node, cooldowns)
        case other:
            raise TemplateError(f"{other or 'SimpleScaling'} is not modelled")


def _tracking_policy(name: str, settings: _Node, cooldowns: _Cooldowns, reading: _Reading) -> TrackingPolicy:
    watched = settings.get("CustomizedMetricSpecification")
    if watched is None:
        raise TemplateError("only customized metrics are modelled")
    return TrackingPolicy(
        name=name,
        query=_query(watched, reading.gaps),
        target=float(settings["TargetValue"]),
        out_cooldown_s=cooldowns.out_s,
        in_cooldown_s=cooldowns.in_s,
        scales_in=not _is_true(settings.get("DisableScaleIn", False)),
        scale_in=reading.scale_in,
    )


def _step_policy(name: str, settings: _Node, cooldowns: _Cooldowns) -> StepPolicy:
    steps = tuple(
        StepAdjustment(
            _bound(step, "MetricIntervalLowerBound"),
            _bound(step, "MetricIntervalUpperBound"),
            _number(step, "ScalingAdjustment"),
        )
        for step in settings["StepAdjustments"]
    )
    refused = why_no_steps(steps)
    if refused:
        raise TemplateError(refused)
    return StepPolicy(
        name=name,
        adjustment=Adjustment(settings["AdjustmentType"]),
        steps=steps,
        out_cooldown_s=cooldowns.out_s,
        in_cooldown_s=cooldowns.in_s,
        aggregation=settings.get("MetricAggregationType", "Average"),
        minimum_magnitude=int(settings.get("MinAdjustmentMagnitude", 0)),
    )


def _alarms(policies: Mapping[str, Policy], reading: _Reading) -> Iterator[Alarm]:
    for name, node in reading.of_type(_ALARM):
        with _named(name):
            yield _alarm(name, node, policies, reading)


def _alarm(name: str, node: _Node, policies: Mapping[str, Policy], reading: _Reading) -> Alarm:
    periods = _number(node, "EvaluationPeriods")
    acts = _is_true(node.get("ActionsEnabled", True))
    called = {state: tuple(each for each in node.get(key, ()) if each in policies) for state, key in _ACTIONS.items()}
    return Alarm(
        name=name,
        query=_query(node, reading.gaps),
        comparison=Comparison(node["ComparisonOperator"]),
        threshold=float(node["Threshold"]),
        period_s=_period(node),
        evaluation_periods=periods,
        datapoints_to_alarm=int(node.get("DatapointsToAlarm", periods)),
        treatment=Treatment(node.get("TreatMissingData", "missing")),
        actions=called if acts else {},
        extra_periods=reading.extra_periods,
    )


def _period(node: _Node) -> int:
    """The period of a plain alarm, or the one that all its metrics share."""
    if "Period" in node:
        return _number(node, "Period")
    parts = node["Metrics"]
    periods = {
        int(part.get("MetricStat", part)["Period"]) for part in parts if "Period" in part.get("MetricStat", part)
    }
    if len(periods) != 1:
        raise TemplateError("the metrics of an alarm have one period between them")
    return periods.pop()


def _query(node: _Node, gaps: Gaps) -> WatchedQuery:
    if "Metrics" not in node:
        return _metric_query(node, node.get("Statistic"))
    parts = {part["Id"]: _part(part) for part in node["Metrics"]}
    returned = [part["Id"] for part in node["Metrics"] if _is_true(part.get("ReturnData", True))]
    if len(returned) != 1:
        raise TemplateError("exactly one of the metrics may return data")
    unknown = {name for part in parts.values() if isinstance(part, Expression) for name in part.names} - parts.keys()
    if unknown:
        raise TemplateError(f"an expression uses {', '.join(sorted(unknown))}, which is not there")
    TopologicalSorter({key: part.names for key, part in parts.items() if isinstance(part, Expression)}).prepare()
    return MathQuery(parts, returned[0], gaps)


def _part(part: _Node) -> MetricQuery | Expression:
    if "Expression" in part:
        return Expression.parse(part["Expression"])
    return _metric_query(part["MetricStat"]["Metric"], part["MetricStat"]["Stat"])


def _metric_query(node: _Node, statistic: str | None) -> MetricQuery:
    if statistic not in STATISTICS:
        raise TemplateError(f"the statistic {statistic} is not modelled")
    dimensions = [(each["Name"], str(each["Value"])) for each in node.get("Dimensions", ())]
    return MetricQuery(MetricIdentity.of(node["Namespace"], node["MetricName"], dimensions), statistic)


def _cooldowns(settings: _Node, out: str, back: str) -> _Cooldowns:
    return _Cooldowns(*(int(settings.get(key, DEFAULT_COOLDOWN_S)) for key in (out, back)))


def _bound(step: _Node, key: str) -> float | None:
    return None if step.get(key) is None else float(step[key])


def _number(node: _Node, key: str) -> int:
    return int(node[key])


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


@contextmanager
def _named(name: str) -> Iterator[None]:
    """What is wrong inside becomes a sentence that names the resource."""
    try:
        yield
    except KeyError as error:
        raise TemplateError(f"{name}: {error.args[0]} is missing") from error
    except (ValueError, TypeError) as error:
        raise TemplateError(f"{name}: {error}") from error


def resolved(node: Any, parameters: Mapping[str, Any]) -> Any:
    """The node with Ref, Fn::GetAtt, Fn::Sub and Fn::Join carried out. Raises `TemplateError` for other functions."""
    if isinstance(node, list):
        return [resolved(each, parameters) for each in node]
    if not isinstance(node, Mapping):
        return node
    if len(node) == 1:
        ((key, argument),) = node.items()
        if key == "Ref" or str(key).startswith("Fn::"):
            return _call(key, argument, parameters)
    return {key: resolved(value, parameters) for key, value in node.items()}


def _call(function: str, argument: Any, parameters: Mapping[str, Any]) -> Any:
    match function, argument:
        case "Ref", str():
            return parameters.get(argument, argument)
        case "Fn::GetAtt", [str(name), *_]:
            return name
        case "Fn::GetAtt", str():
            return argument.partition(".")[0]
        case "Fn::Sub", str():
            return _substituted(argument, parameters)
        case "Fn::Sub", [str(text), {**more}]:
            return _substituted(text, {**parameters, **resolved(more, parameters)})
        case "Fn::Join", [str(between), list(parts)]:
            return between.join(str(resolved(part, parameters)) for part in parts)
        case _:
            raise TemplateError(f"{function} is not modelled")


def _substituted(text: str, parameters: Mapping[str, Any]) -> str:
    return re.sub(r"\$\{([^!}][^}]*)\}", lambda found: str(parameters.get(found[1], found[1])), text)
