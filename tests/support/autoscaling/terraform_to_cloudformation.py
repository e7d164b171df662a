"""Translates planned Terraform resources to CloudFormation for a comparison; an unknown attribute is a KeyError."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import hcl2

Body = Mapping[str, Any]
Rule = Callable[[Any], Body]
Table = Mapping[str, "str | Rule"]


def parse_terraform(text: str) -> dict[str, Any]:
    """Parse Terraform with python-hcl2; strings become their values, references ``{"Ref": ...}``."""
    options = hcl2.SerializationOptions(with_comments=False, explicit_blocks=False)
    read: dict[str, Any] = _plain(hcl2.loads(text, serialization_options=options))
    return read


def parse_literal(text: str) -> Any:
    """Return the value of one literal."""
    return parse_terraform(f"value = {text}\n")["value"]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, str) and value.startswith("${"):
        return {"Ref": value[2:-1]}
    # Karrot writes only escapes that JSON has too, so JSON can read the strings of its Terraform.
    return json.loads(value) if isinstance(value, str) and value.startswith('"') else value


def cloudformation_resources(planned: Mapping[str, Body]) -> dict[str, dict[str, Any]]:
    """Return planned resources as CloudFormation would have them: by the key of their service, then by logical id.

    An alarm on the heartbeat is under the name of its Kafka cluster, and the policy for Karrot is under ``0``.
    """
    found: dict[str, dict[str, Any]] = {}
    scheduled: dict[str, list[Body]] = {}
    for address, body in planned.items():
        kind, key = _split(address)
        type_name, table = _KINDS[kind.partition(".")[0]]
        if type_name == _WITHIN_TARGET:
            key = re.sub(r"-\d+-(begin|end)$", "", key)
        properties = _translated(_with_ids(body, key), table)
        if type_name == _WITHIN_TARGET:
            scheduled.setdefault(key, []).append(properties)
        else:
            found.setdefault(key, {})[_LOGICAL_IDS[kind]] = {"Type": type_name, "Properties": properties}
    for key, actions in scheduled.items():
        found[key]["ScalableTarget"]["Properties"]["ScheduledActions"] = actions
    return found


def _split(address: str) -> tuple[str, str]:
    """Return the type and name of a resource, and the key of its instance."""
    kind, _, key = address.partition("[")
    return kind, str(json.loads(key.removesuffix("]")))


def _with_ids(value: Any, key: str) -> Any:
    """Replace references to resources of the same service by logical ids. A reference to others is an error."""
    if isinstance(value, list):
        return [_with_ids(each, key) for each in value]
    if not isinstance(value, Mapping):
        return value
    if value.keys() == {"Ref"}:
        address, _, attribute = value["Ref"].rpartition(".")
        kind, of_key = _split(address)
        assert of_key == key
        return {"Ref": _LOGICAL_IDS[kind], "attribute": attribute}
    return {name: _with_ids(each, key) for name, each in value.items()}


def _translated(body: Body, table: Table) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for attribute, value in body.items():
        rule = table[attribute]
        made.update({rule: value} if isinstance(rule, str) else rule(value))
    return made


@dataclass(frozen=True)
class Block:
    """A block that appears once, or with ``many`` any number of times."""

    name: str
    table: Table
    many: bool = False

    def __call__(self, bodies: list[Body]) -> Body:
        made = [_translated(body, self.table) for body in bodies]
        if self.many:
            return {self.name: made}
        [only] = made
        return {self.name: only}


def _nothing(_value: Any) -> Body:
    """Translate an attribute for which CloudFormation has no property."""
    return {}


def _target(value: Any) -> Body:
    """Translate Terraform's three attributes of the scalable target to CloudFormation's one reference."""
    assert value["Ref"] == "ScalableTarget"
    assert value["attribute"] in {"service_namespace", "scalable_dimension", "resource_id"}
    return {"ScalingTargetId": {"Ref": "ScalableTarget"}}


def _of_target(value: Any) -> Body:
    """Check a reference to the scalable target, whose property a scheduled action is in CloudFormation."""
    assert _target(value)
    return {}


def _actions(name: str) -> Rule:
    def rule(values: list[Any]) -> Body:
        return {name: [_action(value) for value in values]}

    return rule


def _action(value: Any) -> Any:
    if isinstance(value, str):
        return value
    assert value["Ref"].endswith("Policy")
    assert value["attribute"] == "arn"
    return {"Ref": value["Ref"]}


def _dimensions(pairs: Mapping[str, str]) -> Body:
    return {"Dimensions": [{"Name": name, "Value": value} for name, value in pairs.items()]}


def _queried(metrics: list[Body]) -> Body:
    """Translate a metric query: Terraform has statistic and period inside the metric, CloudFormation around it."""
    [body] = metrics
    metric = {name: value for name, value in body.items() if name not in ("stat", "period")}
    around = {"Stat": body["stat"], "Period": body["period"]}
    return {"MetricStat": {"Metric": _translated(metric, {**_METRIC, "dimensions": _dimensions}), **around}}


def _document(text: str) -> Body:
    return {"PolicyDocument": json.loads(text)}


_METRIC: Table = {"namespace": "Namespace", "metric_name": "MetricName"}
_DIMENSION: Table = {"name": "Name", "value": "Value"}
_BY_BLOCKS: Table = {**_METRIC, "dimensions": Block("Dimensions", _DIMENSION, many=True)}
_QUERY: Table = {
    "id": "Id",
    "expression": "Expression",
    "return_data": "ReturnData",
    "metric_stat": Block("MetricStat", {"stat": "Stat", "metric": Block("Metric", _BY_BLOCKS)}),
}
_STEPS: Table = {
    "adjustment_type": "AdjustmentType",
    "metric_aggregation_type": "MetricAggregationType",
    "cooldown": "Cooldown",
    "step_adjustment": Block(
        "StepAdjustments",
        {
            "scaling_adjustment": "ScalingAdjustment",
            "metric_interval_lower_bound": "MetricIntervalLowerBound",
            "metric_interval_upper_bound": "MetricIntervalUpperBound",
        },
        many=True,
    ),
}
_WATCHED: Table = {"statistic": "Statistic", "metrics": Block("Metrics", _QUERY, many=True)}
_TRACKING: Table = {
    "target_value": "TargetValue",
    "scale_out_cooldown": "ScaleOutCooldown",
    "scale_in_cooldown": "ScaleInCooldown",
    "customized_metric_specification": Block(
        "CustomizedMetricSpecification",
        {**_BY_BLOCKS, **_WATCHED},
    ),
}
_LOGICAL_IDS = {
    "aws_appautoscaling_target.service": "ScalableTarget",
    "aws_appautoscaling_policy.lag_tracking": "LagTracking",
    "aws_appautoscaling_policy.wake_up": "WakeUpPolicy",
    "aws_appautoscaling_policy.lag_high": "LagHighPolicy",
    "aws_appautoscaling_policy.lag_low": "LagLowPolicy",
    "aws_cloudwatch_metric_alarm.wake_up": "WakeUpAlarm",
    "aws_cloudwatch_metric_alarm.lag_high": "LagHighAlarm",
    "aws_cloudwatch_metric_alarm.lag_low": "LagLowAlarm",
    "aws_cloudwatch_metric_alarm.status": "StatusAlarm",
    "aws_cloudwatch_metric_alarm.no_lag": "NoLagAlarm",
    "aws_cloudwatch_metric_alarm.max_capacity": "MaxCapacityAlarm",
    "aws_cloudwatch_metric_alarm.heartbeat": "HeartbeatAlarm",
    "aws_iam_policy.publish": "PublishPolicy",
}
"""The logical ids of the rendered template, by the names in the module."""
_WITHIN_TARGET = "a property of the scalable target"
_KINDS: dict[str, tuple[str, Table]] = {
    "aws_appautoscaling_scheduled_action": (
        _WITHIN_TARGET,
        {
            "name": "ScheduledActionName",
            "service_namespace": _of_target,
            "scalable_dimension": _of_target,
            "resource_id": _of_target,
            "schedule": "Schedule",
            "timezone": "Timezone",
            "scalable_target_action": Block("ScalableTargetAction", {"min_capacity": "MinCapacity"}),
        },
    ),
    "aws_appautoscaling_target": (
        "AWS::ApplicationAutoScaling::ScalableTarget",
        {
            "service_namespace": "ServiceNamespace",
            "scalable_dimension": "ScalableDimension",
            "resource_id": "ResourceId",
            "min_capacity": "MinCapacity",
            "max_capacity": "MaxCapacity",
        },
    ),
    "aws_appautoscaling_policy": (
        "AWS::ApplicationAutoScaling::ScalingPolicy",
        {
            "name": "PolicyName",
            "policy_type": "PolicyType",
            "service_namespace": _target,
            "scalable_dimension": _target,
            "resource_id": _target,
            "step_scaling_policy_configuration": Block("StepScalingPolicyConfiguration", _STEPS),
            "target_tracking_scaling_policy_configuration": Block(
                "TargetTrackingScalingPolicyConfiguration", _TRACKING
            ),
        },
    ),
    "aws_cloudwatch_metric_alarm": (
        "AWS::CloudWatch::Alarm",
        {
            "alarm_name": "AlarmName",
            "alarm_description": "AlarmDescription",
            **_METRIC,
            "dimensions": _dimensions,
            "statistic": "Statistic",
            "period": "Period",
            "metric_query": Block("Metrics", {**_QUERY, "metric": _queried}, many=True),
            "comparison_operator": "ComparisonOperator",
            "threshold": "Threshold",
            "evaluation_periods": "EvaluationPeriods",
            "datapoints_to_alarm": "DatapointsToAlarm",
            "treat_missing_data": "TreatMissingData",
            "alarm_actions": _actions("AlarmActions"),
            "ok_actions": _actions("OKActions"),
        },
    ),
    "aws_iam_policy": (
        "AWS::IAM::ManagedPolicy",
        {"name_prefix": _nothing, "description": "Description", "policy": _document},
    ),
}
