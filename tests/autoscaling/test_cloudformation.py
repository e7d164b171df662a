"""Templates as somebody writes or renders them."""

from typing import Any

import pytest

from karrot.autoscaling import (
    Adjustment,
    AlarmState,
    Gaps,
    MathQuery,
    MetricIdentity,
    MetricQuery,
    RecordedMetrics,
    ScaleIn,
    StepAdjustment,
    StepPolicy,
    TemplateError,
    TrackingPolicy,
    from_cloudformation,
)
from support.autoscaling.cloudformation_stack import (
    DIMENSIONS,
    LAG_METRIC,
    Node,
    make_alarm,
    make_template,
    scalable_target,
    step_policy,
    tracking_policy,
)

ADD_ONE = {"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}
TAKE_ONE = {"MetricIntervalUpperBound": 0, "ScalingAdjustment": -1}
RUNNING = MetricIdentity.of(
    "ECS/ContainerInsights", "RunningTaskCount", {"ClusterName": "prod", "ServiceName": "orders"}
)
BACKLOG: list[Node] = [
    {"Id": "backlog", "Expression": "lag / running", "ReturnData": True},
    {
        "Id": "lag",
        "MetricStat": {
            "Metric": {"Namespace": "Karrot", "MetricName": "Lag", "Dimensions": DIMENSIONS},
            "Stat": "Maximum",
            "Period": 60,
        },
        "ReturnData": False,
    },
    {
        "Id": "running",
        "MetricStat": {
            "Metric": {
                "Namespace": RUNNING.namespace,
                "MetricName": RUNNING.name,
                "Dimensions": [{"Name": name, "Value": value} for name, value in RUNNING.dimensions],
            },
            "Stat": "Average",
            "Period": 60,
        },
        "ReturnData": "false",
    },
]


def group_policy(kind: str, **settings: Any) -> Node:
    return {
        "Type": "AWS::AutoScaling::ScalingPolicy",
        "Properties": {"AutoScalingGroupName": "workers", "PolicyType": kind, **settings},
    }


def test_a_step_policy_and_its_alarm_are_read_as_they_stand() -> None:
    stack = from_cloudformation(make_template(Out=step_policy(ADD_ONE, Cooldown=90), High=make_alarm("Out")))
    assert (stack.minimum, stack.maximum) == (1, 10)
    assert stack.policies["Out"] == StepPolicy(
        "Out", Adjustment.CHANGE, (StepAdjustment(0, None, 1),), 90, 90, "Maximum"
    )
    high = stack.alarms["High"]
    assert high.query == MetricQuery(LAG_METRIC, "Maximum")
    assert (high.threshold, high.period_s, high.datapoints_to_alarm, high.evaluation_periods) == (1000, 60, 2, 3)
    assert high.actions[AlarmState.ALARM] == ("Out",)
    assert stack.metrics == {LAG_METRIC}


def test_target_tracking_brings_its_own_two_alarms() -> None:
    stack = from_cloudformation(
        make_template(Track=tracking_policy(60, ScaleInCooldown=600)), scale_in=ScaleIn.PROPORTIONAL
    )
    policy = stack.policies["Track"]
    assert isinstance(policy, TrackingPolicy)
    assert (policy.target, policy.out_cooldown_s, policy.in_cooldown_s) == (60, 300, 600)
    assert policy.scale_in is ScaleIn.PROPORTIONAL
    told = {
        name: (each.threshold, each.datapoints_to_alarm, each.evaluation_periods) for name, each in stack.alarms.items()
    }
    assert told == {"Track-AlarmHigh": (60, 3, 3), "Track-AlarmLow": (54, 15, 15)}


def test_metric_math_is_read_for_alarms_and_for_target_tracking() -> None:
    tracking = tracking_policy(100)
    tracking["Properties"]["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"] = {
        "Metrics": BACKLOG
    }
    stack = from_cloudformation(make_template(Track=tracking, High=make_alarm(Metrics=BACKLOG)), gaps=Gaps.DROPPED)
    assert stack.metrics == {LAG_METRIC, RUNNING}
    assert all(isinstance(each.query, MathQuery) and each.query.gaps is Gaps.DROPPED for each in stack.alarms.values())
    metrics = RecordedMetrics()
    metrics.put(LAG_METRIC, 0, 500)
    metrics.put(RUNNING, 0, 4)
    assert stack.alarms["High"].query.values(metrics, end_s=60, period_s=60, count=1) == [125]


def test_references_parameters_and_substitutions_are_carried_out() -> None:
    made = make_template(Out=step_policy(ADD_ONE), High=make_alarm("Out", Threshold={"Ref": "Threshold"}))
    made["Resources"]["Target"] = scalable_target({"Ref": "Least"}, "12")
    made["Resources"]["High"]["Properties"]["AlarmActions"] = [{"Fn::GetAtt": ["Out", "Arn"]}, "arn:aws:sns:eu:1:topic"]
    made["Resources"]["High"]["Properties"]["Dimensions"] = [
        {"Name": "Cluster", "Value": {"Fn::Sub": "${Stage}-eu"}},
        {"Name": "ConsumerGroup", "Value": {"Fn::Join": ["-", [{"Ref": "Stage"}, "orders"]]}},
    ]
    made["Parameters"] = {"Stage": {"Default": "prod"}, "Least": {"Default": 2}, "Threshold": {"Type": "Number"}}
    stack = from_cloudformation(made, parameters={"Threshold": "250", "Least": 3})
    assert (stack.minimum, stack.maximum) == (3, 12)
    assert stack.alarms["High"].threshold == 250
    assert stack.alarms["High"].actions[AlarmState.ALARM] == ("Out",)
    assert stack.metrics == {MetricIdentity.of("Karrot", "Lag", {"Cluster": "prod-eu", "ConsumerGroup": "prod-orders"})}


def test_an_alarm_without_a_policy_is_kept_for_its_state() -> None:
    stack = from_cloudformation(
        make_template(Out=step_policy(ADD_ONE), Silence=make_alarm(TreatMissingData="breaching"))
    )
    stack.tick(60, RecordedMetrics(), 1)
    assert stack.states == {"Silence": AlarmState.ALARM}


def test_disabled_actions_are_none() -> None:
    stack = from_cloudformation(make_template(Out=step_policy(ADD_ONE), High=make_alarm("Out", ActionsEnabled=False)))
    assert stack.alarms["High"].actions == {}


def test_an_auto_scaling_group_warms_up_and_takes_nothing_away_meanwhile() -> None:
    change, once = {"AdjustmentType": "ChangeInCapacity"}, {"EvaluationPeriods": 1, "DatapointsToAlarm": 1}
    resources = {
        "Out": group_policy("StepScaling", **change, StepAdjustments=[ADD_ONE], EstimatedInstanceWarmup=120),
        "In": group_policy("StepScaling", **change, StepAdjustments=[TAKE_ONE]),
        "High": make_alarm("Out", **once),
        "Low": make_alarm("In", **once, Threshold=0, ComparisonOperator="LessThanOrEqualToThreshold"),
    }
    stack, metrics, told = from_cloudformation({"Resources": resources}, limits=(1, 9)), RecordedMetrics(), [3]
    for minute, lag in enumerate([5000, 5000, 5000, 0, 0, 0, 0]):
        metrics.put(LAG_METRIC, minute * 60, lag)
        told.append(stack.tick(minute * 60 + 60, metrics, told[-1]))
    assert told == [3, 4, 4, 5, 5, 4, 3, 2]


def test_a_group_made_in_the_template_bounds_itself() -> None:
    settings = tracking_policy()["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    resources = {
        "Group": {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {"MinSize": "2", "MaxSize": "4"}},
        "Track": group_policy("TargetTrackingScaling", TargetTrackingConfiguration=settings),
    }
    stack = from_cloudformation({"Resources": resources})
    assert (stack.minimum, stack.maximum) == (2, 4)


def without(node: Node, key: str) -> Node:
    del node["Properties"][key]
    return node


OUT = {"Out": step_policy(ADD_ONE)}


@pytest.mark.parametrize(
    ("resources", "sentence"),
    [
        ({}, "the template has no scaling policy"),
        ({"Out": step_policy({"ScalingAdjustment": 1})}, "Out: a step has no bound at all"),
        ({"Out": step_policy(ADD_ONE, AdjustmentType="Doubling")}, "Out: 'Doubling' is not a valid Adjustment"),
        (OUT | {"High": without(make_alarm("Out"), "Threshold")}, "High: Threshold is missing"),
        (OUT | {"High": make_alarm("Out", Statistic="p99")}, "High: the statistic p99 is not modelled"),
        (OUT | {"High": make_alarm("Out", Threshold={"Fn::If": ["a", 1, 2]})}, "High: Fn::If is not modelled"),
        (OUT | {"High": make_alarm(Metrics=BACKLOG[:2])}, "High: an expression uses running, which is not there"),
        (OUT | {"High": make_alarm(Metrics=BACKLOG[1:])}, "High: exactly one of the metrics may return data"),
        ({"Track": tracking_policy(CustomizedMetricSpecification=None)}, "Track: only customized metrics are modelled"),
        ({"Out": group_policy("SimpleScaling")}, "Out: SimpleScaling is not modelled"),
        (OUT | {"Second": scalable_target()}, "the template has 2 scalable targets; one is modelled"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence(resources: dict[str, Node], sentence: str) -> None:
    with pytest.raises(TemplateError) as raised:
        from_cloudformation(make_template(**resources))
    assert str(raised.value) == sentence


def test_expressions_in_a_circle_are_refused() -> None:
    circle = [{"Id": "a", "Expression": "b"}, {"Id": "b", "Expression": "a", "ReturnData": False}]
    with pytest.raises(TemplateError, match=r"High: .*cycle"):
        from_cloudformation(make_template(Out=step_policy(ADD_ONE), High=make_alarm("Out", Metrics=circle, Period=60)))


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(TemplateError, match="no parameter Stage"):
        from_cloudformation(make_template(Out=step_policy(ADD_ONE)), parameters={"Stage": "prod"})
