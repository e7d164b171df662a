"""CloudFormation by hand, in the shape of a scaling stack for one consumer group."""

from typing import Any

from karrot.autoscaling import MetricIdentity

DIMENSIONS = [{"Name": "Cluster", "Value": "main"}, {"Name": "ConsumerGroup", "Value": "orders"}]
LAG_METRIC = MetricIdentity.of("Karrot", "Lag", {"Cluster": "main", "ConsumerGroup": "orders"})

Node = dict[str, Any]


def make_template(**resources: Node) -> Node:
    return {"Resources": {"Target": scalable_target(), **resources}}


def scalable_target(minimum: Any = 1, maximum: Any = 10) -> Node:
    return {
        "Type": "AWS::ApplicationAutoScaling::ScalableTarget",
        "Properties": {
            "MinCapacity": minimum,
            "MaxCapacity": maximum,
            "ResourceId": "service/prod/orders",
            "ScalableDimension": "ecs:service:DesiredCount",
            "ServiceNamespace": "ecs",
        },
    }


def step_policy(*steps: Node, **settings: Any) -> Node:
    return {
        "Type": "AWS::ApplicationAutoScaling::ScalingPolicy",
        "Properties": {
            "PolicyName": "steps",
            "PolicyType": "StepScaling",
            "ScalingTargetId": {"Ref": "Target"},
            "StepScalingPolicyConfiguration": {
                "AdjustmentType": "ChangeInCapacity",
                "MetricAggregationType": "Maximum",
                "Cooldown": 60,
                "StepAdjustments": list(steps),
                **settings,
            },
        },
    }


def tracking_policy(target_value: float = 60, **settings: Any) -> Node:
    watched = {"MetricName": "Lag", "Namespace": "Karrot", "Statistic": "Maximum", "Dimensions": DIMENSIONS}
    return {
        "Type": "AWS::ApplicationAutoScaling::ScalingPolicy",
        "Properties": {
            "PolicyName": "tracking",
            "PolicyType": "TargetTrackingScaling",
            "ScalingTargetId": {"Ref": "Target"},
            "TargetTrackingScalingPolicyConfiguration": {
                "TargetValue": target_value,
                "CustomizedMetricSpecification": watched,
                **settings,
            },
        },
    }


def make_alarm(policy: str | None = None, **settings: Any) -> Node:
    watched: Node = {"MetricName": "Lag", "Namespace": "Karrot", "Statistic": "Maximum", "Dimensions": DIMENSIONS}
    if "Metrics" in settings:
        watched = {}
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "Threshold": 1000,
            "EvaluationPeriods": 3,
            "DatapointsToAlarm": 2,
            "TreatMissingData": "missing",
            "AlarmActions": [{"Ref": policy}] if policy else [],
            **({} if "Metrics" in settings else {"Period": 60}),
            **watched,
            **settings,
        },
    }
