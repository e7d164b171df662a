"""The parts of a scaling recipe, which change nothing while lag metrics are missing."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from karrot.render.ecs_autoscaling import autoscaling
from karrot.render.scaling_recipe import Scaling
from karrot.reporters.cloudwatch.data import dimension_value
from karrot.settings.options import GroupMetricName
from support.autoscaling.metric_math_evaluator import Expression, Gaps
from support.autoscaling.scaling_recipes import RECIPES, TOPIC, make_scaling, render_cloudformation
from support.reporters.cloudwatch_datum import decoded

LAG = [{"Name": "Cluster", "Value": "prod-eu"}, {"Name": "ConsumerGroup", "Value": "orders"}]
TASKS = [{"Name": "ClusterName", "Value": "prod"}, {"Name": "ServiceName", "Value": "orders-worker"}]


def stack(name: str) -> dict[str, Any]:
    found: dict[str, Any] = render_cloudformation(RECIPES[name])["Resources"]
    return found


def alarms(name: str) -> dict[str, Any]:
    return {key: each["Properties"] for key, each in stack(name).items() if each["Type"] == "AWS::CloudWatch::Alarm"}


def watched(alarm: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: alarm[name] for name in names}


def expression_of(queries: list[dict[str, Any]]) -> tuple[str, dict[str, tuple[str, str, str]]]:
    """Return the expression, and the namespace, metric and statistic of each of its names."""
    [text] = [query["Expression"] for query in queries if query["ReturnData"]]
    stats = {query["Id"]: query["MetricStat"] for query in queries if not query["ReturnData"]}
    return text, {
        name: (each["Metric"]["Namespace"], each["Metric"]["MetricName"], each["Stat"]) for name, each in stats.items()
    }


def test_target_tracking_holds_the_age_of_the_lag_without_metric_math() -> None:
    found = stack("ecs-tracking-seconds")
    assert found["ScalableTarget"]["Properties"] == {
        "ServiceNamespace": "ecs",
        "ScalableDimension": "ecs:service:DesiredCount",
        "ResourceId": "service/prod/orders-worker",
        "MinCapacity": 1,
        "MaxCapacity": 12,
    }
    assert found["LagTracking"]["Properties"] == {
        "PolicyName": "karrot/prod/orders-worker/lag-tracking",
        "PolicyType": "TargetTrackingScaling",
        "ScalingTargetId": {"Ref": "ScalableTarget"},
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": 60,
            "ScaleOutCooldown": 60,
            "ScaleInCooldown": 300,
            "CustomizedMetricSpecification": {
                "Namespace": "Karrot",
                "MetricName": "ScalableLagSeconds",
                "Dimensions": LAG,
                "Statistic": "Maximum",
            },
        },
    }


def test_step_scaling_adds_more_for_a_higher_lag_and_removes_one_after_a_quiet_quarter_of_an_hour() -> None:
    found = stack("ecs-step-seconds")
    out = found["LagHighPolicy"]["Properties"]["StepScalingPolicyConfiguration"]
    assert out == {
        "AdjustmentType": "ChangeInCapacity",
        "MetricAggregationType": "Maximum",
        "Cooldown": 60,
        "StepAdjustments": [
            {"ScalingAdjustment": 1, "MetricIntervalLowerBound": 0, "MetricIntervalUpperBound": 60},
            {"ScalingAdjustment": 2, "MetricIntervalLowerBound": 60, "MetricIntervalUpperBound": 180},
            {"ScalingAdjustment": 4, "MetricIntervalLowerBound": 180},
        ],
    }
    inward = found["LagLowPolicy"]["Properties"]["StepScalingPolicyConfiguration"]
    assert inward["StepAdjustments"] == [{"ScalingAdjustment": -1, "MetricIntervalUpperBound": 0}]
    assert inward["Cooldown"] == 300
    assert found["LagHighAlarm"]["Properties"] == {
        "AlarmName": "karrot/prod/orders-worker/lag-high-alarm",
        "AlarmDescription": "The lag is too high",
        "Namespace": "Karrot",
        "MetricName": "ScalableLagSeconds",
        "Dimensions": LAG,
        "Statistic": "Maximum",
        "Period": 60,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "Threshold": 60,
        "EvaluationPeriods": 3,
        "DatapointsToAlarm": 2,
        "TreatMissingData": "missing",
        "AlarmActions": [{"Ref": "LagHighPolicy"}],
    }
    low = found["LagLowAlarm"]["Properties"]
    assert watched(low, "ComparisonOperator", "Threshold", "EvaluationPeriods", "DatapointsToAlarm") == {
        "ComparisonOperator": "LessThanOrEqualToThreshold",
        "Threshold": 15,
        "EvaluationPeriods": 15,
        "DatapointsToAlarm": 15,
    }
    assert low["AlarmActions"] == [{"Ref": "LagLowPolicy"}]


def test_the_last_task_is_removed_only_when_no_message_is_unread() -> None:
    assert alarms("ecs-step-messages")["LagLowAlarm"]["Threshold"] == 0
    assert alarms("ecs-step-fast")["LagLowAlarm"]["Threshold"] == 2500


def test_high_resolution_is_evaluated_every_ten_seconds_and_names_the_setting_of_karrot() -> None:
    fast = alarms("ecs-step-fast")
    assert watched(fast["LagHighAlarm"], "Period", "EvaluationPeriods", "DatapointsToAlarm") == {
        "Period": 10,
        "EvaluationPeriods": 3,
        "DatapointsToAlarm": 3,
    }
    assert {name: alarm["Period"] for name, alarm in fast.items() if name != "LagHighAlarm"} == {
        "LagLowAlarm": 60,
        "StatusAlarm": 60,
        "NoLagAlarm": 60,
        "MaxCapacityAlarm": 60,
        "HeartbeatAlarm": 60,
    }
    assert "#   KARROT_CLOUDWATCH_RESOLUTION must be 1" in autoscaling(RECIPES["ecs-step-fast"])


@pytest.mark.parametrize("name", RECIPES)
def test_no_scaling_alarm_treats_missing_data_as_a_value(name: str) -> None:
    others = {"HeartbeatAlarm": "breaching", "NoLagAlarm": "breaching", "LagLowAlarm": "notBreaching"}
    for key, alarm in alarms(name).items():
        assert alarm["TreatMissingData"] == others.get(key, "missing")
        scales = [action for action in alarm.get("AlarmActions", []) if action != TOPIC]
        assert bool(scales) == (key not in ("HeartbeatAlarm", "MaxCapacityAlarm", "NoLagAlarm", "StatusAlarm"))


@pytest.mark.parametrize("name", RECIPES)
def test_two_publishers_do_not_double_any_statistic(name: str) -> None:
    of_karrot = [alarm for alarm in alarms(name).values() if alarm.get("Namespace") == "Karrot"]
    assert {alarm["Statistic"] for alarm in of_karrot} == {"Maximum"}


@pytest.mark.parametrize("name", RECIPES)
def test_the_output_names_the_metrics_that_must_be_enabled(name: str) -> None:
    text = autoscaling(RECIPES[name])
    [line] = [each for each in text.splitlines() if each.startswith("#   KARROT_CLOUDWATCH_METRICS")]
    told = set(line.partition("must contain ")[2].partition(" (")[0].split(","))
    assert told == {metric for metric in GroupMetricName if f'"{metric}"' in text}


def test_the_head_warns_of_a_cluster_name_that_burrow_never_writes() -> None:
    warned = autoscaling(make_scaling(recipe="step", max_lag=1, burrow_cluster="Prod-EU"))
    assert '# Burrow writes the names of clusters in lower case, so it never reports on "Prod-EU".' in warned
    assert "lower case" not in autoscaling(make_scaling(recipe="step", max_lag=1))


def test_a_topic_is_notified_of_a_silent_monitor_and_of_the_maximum_of_tasks() -> None:
    for key in ("HeartbeatAlarm", "MaxCapacityAlarm"):
        alarm = alarms("ecs-step-seconds")[key]
        assert (alarm["AlarmActions"], alarm["OKActions"]) == ([TOPIC], [TOPIC])
        assert "AlarmActions" not in alarms("ecs-step-fast")[key]
    heartbeat = alarms("ecs-step-fast")["HeartbeatAlarm"]
    assert watched(heartbeat, "MetricName", "Dimensions", "ComparisonOperator", "Threshold", "EvaluationPeriods") == {
        "MetricName": "Heartbeat",
        "Dimensions": LAG[:1],
        "ComparisonOperator": "LessThanThreshold",
        "Threshold": 1,
        "EvaluationPeriods": 5,
    }
    most = alarms("ecs-step-fast")["MaxCapacityAlarm"]
    assert watched(most, "Namespace", "MetricName", "Dimensions", "Threshold", "EvaluationPeriods") == {
        "Namespace": "AWS/ECS",
        "MetricName": "CPUUtilization",
        "Dimensions": TASKS,
        "Threshold": 12,
        "EvaluationPeriods": 15,
    }
    counted = alarms("ecs-insights-backlog")["MaxCapacityAlarm"]
    assert watched(counted, "Namespace", "MetricName", "Statistic") == {
        "Namespace": "ECS/ContainerInsights",
        "MetricName": "RunningTaskCount",
        "Statistic": "Maximum",
    }


def test_the_resources_that_groups_of_a_cluster_share_can_be_left_out() -> None:
    assert not {"HeartbeatAlarm", "PublishPolicy"} & set(stack("ecs-tracking-backlog"))
    assert "Outputs" not in render_cloudformation(RECIPES["ecs-tracking-backlog"])


def test_karrot_may_only_publish_in_its_own_namespace() -> None:
    asked = make_scaling(recipe="step", max_lag=1, namespace="Lag/Of#Ours")
    assert render_cloudformation(asked)["Resources"]["PublishPolicy"]["Properties"]["PolicyDocument"] == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "cloudwatch:PutMetricData",
                "Resource": "*",
                "Condition": {"StringEquals": {"cloudwatch:namespace": "Lag/Of#Ours"}},
            }
        ],
    }


def test_an_auto_scaling_group_has_a_warm_up_and_keeps_its_own_limits() -> None:
    found = stack("asg-step-seconds")
    assert "ScalableTarget" not in found
    assert found["LagHighPolicy"]["Properties"] == {
        "AutoScalingGroupName": "orders workers",
        "PolicyType": "StepScaling",
        "AdjustmentType": "ChangeInCapacity",
        "MetricAggregationType": "Maximum",
        "EstimatedInstanceWarmup": 300,
        "StepAdjustments": stack("ecs-step-seconds")["LagHighPolicy"]["Properties"]["StepScalingPolicyConfiguration"][
            "StepAdjustments"
        ],
    }
    text = autoscaling(RECIPES["asg-step-seconds"])
    assert "# The group's MinSize (1) and MaxSize (12) limit the scaling." in text


BACKLOG_ECS = {
    "lag": ("Karrot", "ScalableLag", "Maximum"),
    "points": ("Karrot", "ScalableLag", "SampleCount"),
    "running": ("AWS/ECS", "CPUUtilization", "SampleCount"),
}
BACKLOG_INSIGHTS = {**BACKLOG_ECS, "running": ("ECS/ContainerInsights", "RunningTaskCount", "Average")}


# From zero, the lag of partitions without a consumer counts too.
LAG_OF_ALL = {"lag": ("Karrot", "Lag", "Maximum"), "points": ("Karrot", "Lag", "SampleCount")}
BACKLOG_ASG = {**BACKLOG_ECS, "running": ("AWS/AutoScaling", "GroupInServiceInstances", "Average")}


def tracked(name: str) -> tuple[str, dict[str, tuple[str, str, str]]]:
    properties = stack(name)["LagTracking"]["Properties"]
    configuration = (
        properties.get("TargetTrackingScalingPolicyConfiguration") or properties["TargetTrackingConfiguration"]
    )
    return expression_of(configuration["CustomizedMetricSpecification"]["Metrics"])


def evaluated(text: str, gaps: Gaps, **series: float | None) -> float | None:
    [value] = Expression.parse(text).values({name: [each] for name, each in series.items()}, 1, gaps)
    return value


def test_the_backlog_per_task_is_the_lag_divided_by_the_running_tasks() -> None:
    text, names = tracked("ecs-tracking-backlog")
    assert names == BACKLOG_ECS
    counted = "lag / (running * points / points)"
    assert tracked("ecs-insights-backlog") == (counted, BACKLOG_INSIGHTS)
    assert tracked("asg-tracking-backlog") == (counted, BACKLOG_ASG)
    for gaps in Gaps:
        assert evaluated(text, gaps, lag=900.0, points=2.0, running=12.0) == 75
        assert evaluated(text, gaps, lag=900.0, points=2.0, running=15.0) == 180  # 5 tasks with 3 samples each
        assert evaluated(text, gaps, lag=900.0, points=2.0, running=3.0) == 300
        assert evaluated(text, gaps, lag=0.0, points=2.0, running=3.0) == 0


def test_a_silent_monitor_gives_no_backlog_for_either_reading_of_missing_values() -> None:
    text, _ = tracked("ecs-tracking-backlog")
    plain, filled = "lag / running", "lag / FILL(running, 1)"
    silent: dict[str, float | None] = {"lag": None, "points": None, "running": 3.0}
    assert {gaps: evaluated(plain, gaps, **silent) for gaps in Gaps} == {Gaps.ZERO: 0, Gaps.DROPPED: None}
    assert {gaps: evaluated(text, gaps, **silent) for gaps in Gaps} == {Gaps.ZERO: None, Gaps.DROPPED: None}
    uncounted: dict[str, float | None] = {"lag": 900.0, "points": 2.0, "running": None}
    assert {gaps: evaluated(filled, gaps, **uncounted) for gaps in Gaps} == {Gaps.ZERO: 900, Gaps.DROPPED: 900}
    assert {gaps: evaluated(text, gaps, **uncounted) for gaps in Gaps} == {Gaps.ZERO: None, Gaps.DROPPED: None}


AGE = ("Karrot", "LagSeconds", "Maximum")


@pytest.mark.parametrize(
    ("name", "expected", "names"),
    [
        (
            "ecs-zero-seconds",
            "IF(FILL(FILL(running, REPEAT), 0) < 1, 60, lag)",
            {"lag": AGE, "running": ("AWS/ECS", "CPUUtilization", "SampleCount")},
        ),
        (
            "asg-zero-seconds",
            "IF(FILL(running, REPEAT) < 1, 60, lag)",
            {"lag": AGE, "running": BACKLOG_ASG["running"]},
        ),
        (
            "ecs-zero-backlog",
            "IF(FILL(FILL(running, REPEAT), 0) < 1, 6000, lag / (FILL(running, REPEAT) * points / points))",
            BACKLOG_INSIGHTS | LAG_OF_ALL,
        ),
        (
            "asg-zero-backlog",
            "IF(FILL(running, REPEAT) < 1, 6000, lag / (FILL(running, REPEAT) * points / points))",
            BACKLOG_ASG | LAG_OF_ALL,
        ),
    ],
    ids=["ecs-zero-seconds", "asg-zero-seconds", "ecs-zero-backlog", "asg-zero-backlog"],
)
def test_from_zero_holds_its_measure_at_the_target_while_no_task_runs(
    name: str, expected: str, names: dict[str, tuple[str, str, str]]
) -> None:
    text, found = tracked(name)
    assert (text, found) == (expected, names)
    target = 60.0 if name.endswith("seconds") else 6000.0
    share = 1 if name.endswith("seconds") else 3
    for gaps in Gaps:
        known = {"lag": 90_000.0} | ({} if share == 1 else {"points": 2.0})
        silent = dict.fromkeys(known)
        assert evaluated(text, gaps, running=0.0, **known) == target
        assert evaluated(text, gaps, running=3.0, **known) == 90_000 / share
        assert evaluated(text, gaps, running=3.0, **silent) is None
        assert evaluated(text, gaps, running=0.0, **silent) == target
        assert evaluated(text, gaps, running=None, **known) == (target if name.startswith("ecs") else None)


def test_the_held_measure_equals_the_target_in_every_notation() -> None:
    for seconds in (0.1 + 0.2, 1e12, 90.25):
        asked = make_scaling(recipe="from-zero", max_lag_seconds=seconds)
        policy = render_cloudformation(asked)["Resources"]["LagTracking"]["Properties"]
        configuration = policy["TargetTrackingScalingPolicyConfiguration"]
        text, _ = expression_of(configuration["CustomizedMetricSpecification"]["Metrics"])
        [held] = Expression.parse(text).values({"running": [None], "lag": [None]}, 1, Gaps.ZERO)
        assert held == configuration["TargetValue"]


def test_the_lag_is_used_where_if_drops_a_missing_value_and_not_where_if_reads_0() -> None:
    silent: dict[str, float | None] = {"running": 3.0, "lag": None}
    text, _ = tracked("ecs-zero-seconds")
    assert evaluated(text, Gaps.ZERO, **silent) is None
    assert evaluated("IF(0 < FILL(FILL(running, REPEAT), 0), lag, 60)", Gaps.ZERO, **silent) == 0


def unread(name: str) -> tuple[str, dict[str, tuple[str, str, str]]]:
    return expression_of(alarms(name)["WakeUpAlarm"]["Metrics"])


def test_from_zero_starts_exactly_one_task() -> None:
    found = stack("ecs-zero-backlog")
    assert found["ScalableTarget"]["Properties"]["MinCapacity"] == 0
    assert found["WakeUpPolicy"]["Properties"]["StepScalingPolicyConfiguration"] == {
        "AdjustmentType": "ExactCapacity",
        "MetricAggregationType": "Maximum",
        "Cooldown": 60,
        "StepAdjustments": [{"ScalingAdjustment": 1, "MetricIntervalLowerBound": 0}],
    }
    assert watched(alarms("ecs-zero-backlog")["WakeUpAlarm"], "Threshold", "EvaluationPeriods", "AlarmActions") == {
        "Threshold": 10,
        "EvaluationPeriods": 3,
        "AlarmActions": [{"Ref": "WakeUpPolicy"}],
    }
    assert "LagTracking" in found


@pytest.mark.parametrize("gaps", Gaps)
def test_a_service_is_woken_up_only_if_no_task_ran_in_the_whole_range(gaps: Gaps) -> None:
    text, names = unread("ecs-zero-seconds")
    assert names == {
        "lag": ("Karrot", "Lag", "Maximum"),
        "running": ("AWS/ECS", "CPUUtilization", "SampleCount"),
    }
    lag: list[float | None] = [5.0, 5.0, 5.0]
    expression = Expression.parse(text)
    nothing_runs = expression.values({"lag": lag, "running": [None, None, None]}, 3, gaps)
    late = expression.values({"lag": lag, "running": [2.0, None, None]}, 3, gaps)
    silent = expression.values({"lag": [None] * 3, "running": [None] * 3}, 3, gaps)
    assert (nothing_runs, late) == ([5, 5, 5], [0, 0, 0])
    assert not any(silent)


@pytest.mark.parametrize("gaps", Gaps)
def test_an_auto_scaling_group_is_woken_up_only_if_its_count_is_known_to_be_zero(gaps: Gaps) -> None:
    text, names = unread("asg-zero-seconds")
    assert names["counted"] == ("AWS/AutoScaling", "GroupInServiceInstances", "SampleCount")
    assert evaluated(text, gaps, lag=5.0, running=0.0, counted=1.0) == 5
    assert evaluated(text, gaps, lag=5.0, running=2.0, counted=1.0) == 0
    assert not evaluated(text, gaps, lag=5.0, running=None, counted=None)


def test_names_that_are_too_long_are_cut_and_still_differ() -> None:
    long = "s" * 255
    names = {
        each["Properties"]["AlarmName"]
        for service in (long, f"{long[:-1]}t")
        for each in render_cloudformation(make_scaling(recipe="step", max_lag=1, service=service))["Resources"].values()
        if each["Type"] == "AWS::CloudWatch::Alarm"
    }
    assert len(names) == 2 * len(alarms("ecs-step-messages"))
    assert max(map(len, names)) == 255


ODD = [
    'say "hi"',
    "${x}",
    "$${x}",
    "%{if}",
    "{{x}}",
    "a\nb",
    "a: b # c",
    pytest.param("\\", id="a backslash"),
    pytest.param("'", id="a quote"),
    "Grüße",
    "%41",
    pytest.param(" ", id="a space"),
    pytest.param("", id="an empty name"),
    pytest.param("x" * 2000, id="2000 letters"),
]


@pytest.mark.parametrize("name", ODD)
def test_an_unusual_name_is_rendered_as_the_reporter_publishes_it(name: str) -> None:
    assert dimensions(make_scaling(recipe="step", max_lag=1, burrow_cluster=name, group=name)) == [
        {"Name": "Cluster", "Value": dimension_value(name).text},
        {"Name": "ConsumerGroup", "Value": dimension_value(name).text},
    ]


@settings(deadline=None, max_examples=10)
@example("{{resolv")
@given(st.text().filter(lambda name: "{{resolve:" not in name))
def test_any_name_is_rendered_as_the_reporter_publishes_it(name: str) -> None:
    value = dimensions(make_scaling(recipe="step", max_lag=1, group=name))[1]["Value"]
    assert value == dimension_value(name).text
    assert dimension_value(name).cut or decoded(value) == name


def dimensions(asked: Scaling) -> list[dict[str, str]]:
    read = render_cloudformation(asked)["Resources"]
    found: list[dict[str, str]] = read["LagHighAlarm"]["Properties"]["Dimensions"]
    return found
