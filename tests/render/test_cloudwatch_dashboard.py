"""The CloudWatch dashboard of a lag and of the tasks that work on it."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from karrot.render.dashboards import cloudwatch_dashboard
from karrot.reporters.cloudwatch.data import dimension_value
from support.autoscaling.scaling_recipes import RECIPES

DOTS = [".", "..."]
REPLACED = "{{resolve:"


def widgets(**changes: Any) -> list[dict[str, Any]]:
    where = {} if "asg_name" in changes else {"ecs_cluster": "prod", "service": "worker"}
    told = {"region": "eu-west-1", "burrow_cluster": "prod-eu", "group": "orders", **where, **changes}
    read = json.loads(cloudwatch_dashboard(**told))
    return [each["properties"] for each in read["widgets"]]


def test_the_dashboard_shows_the_lag_with_the_running_tasks() -> None:
    lag, age, heartbeat = widgets(max_tasks=12, max_lag_seconds=60)
    assert lag["metrics"] == [
        [*("Karrot", "Lag", "Cluster", "prod-eu", "ConsumerGroup", "orders"), {"stat": "Maximum", "label": "lag"}],
        [
            *("Karrot", "ScalableLag", "Cluster", "prod-eu", "ConsumerGroup", "orders"),
            {"stat": "Maximum", "label": "scalable lag"},
        ],
        [
            *("AWS/ECS", "CPUUtilization", "ClusterName", "prod", "ServiceName", "worker"),
            {"stat": "SampleCount", "label": "running tasks", "yAxis": "right"},
        ],
    ]
    assert lag["annotations"]["horizontal"] == [{"label": "maximum", "value": 12, "yAxis": "right"}]
    assert [each[1] for each in age["metrics"]] == ["LagSeconds", "ScalableLagSeconds"]
    assert [each[1] for each in heartbeat["metrics"]] == ["Heartbeat"]
    assert age["annotations"]["horizontal"] == [{"label": "target", "value": 60}]
    assert {each["region"] for each in (lag, age, heartbeat)} == {"eu-west-1"}


def test_instances_of_an_auto_scaling_group_are_counted_too() -> None:
    lag, *_ = widgets(asg_name="work ers")
    *identity, drawn = lag["metrics"][-1]
    assert identity == ["AWS/AutoScaling", "GroupInServiceInstances", "AutoScalingGroupName", "work ers"]
    assert drawn["stat"] == "Maximum"
    assert "annotations" not in lag


def test_container_insights_count_the_running_tasks_exactly() -> None:
    lag, *_ = widgets(container_insights=True)
    *identity, drawn = lag["metrics"][-1]
    assert identity == ["ECS/ContainerInsights", "RunningTaskCount", "ClusterName", "prod", "ServiceName", "worker"]
    assert drawn["stat"] == "Maximum"


@pytest.mark.parametrize("name", RECIPES)
def test_the_dashboard_draws_the_lag_that_each_recipe_reads(name: str) -> None:
    assert RECIPES[name].measured in {each[1] for widget in widgets() for each in widget["metrics"]}


@settings(deadline=None, max_examples=30)
@example(REPLACED)
@given(st.text().filter(lambda group: group not in DOTS))
def test_any_group_is_shown_under_its_published_name_or_refused(group: str) -> None:
    if REPLACED in group:
        with pytest.raises(ValueError, match=r"^--group is .*: CloudFormation would replace"):
            widgets(group=group)
        return
    lag, *_ = widgets(group=group)
    assert lag["metrics"][0][5] == dimension_value(group).text


@pytest.mark.parametrize("group", DOTS)
def test_a_name_that_a_dashboard_reads_as_the_line_above_is_refused(group: str) -> None:
    with pytest.raises(ValueError, match="reads this name as a reference to the line above; use another"):
        widgets(group=group)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"region": "Ireland"}, "--region is 'Ireland': it must be a region, such as eu-west-1"),
        ({"service": None}, "--service is missing: it must be the name that ECS knows"),
        ({"asg_name": "a", "service": "b"}, "give either --asg-name, or --ecs-cluster and --service"),
        (
            {"asg_name": "a", "container_insights": True},
            "--container-insights goes with --ecs-cluster and --service",
        ),
        ({"max_tasks": 0}, "--max-tasks is 0: it must be a whole number from 1 to 10000"),
        ({"max_lag_seconds": 0.0}, "--max-lag-seconds is 0.0: it must be a number above 0"),
    ],
)
def test_invalid_options_of_a_dashboard_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^(--|give either)") as caught:
        widgets(**changes)
    assert str(caught.value).startswith(sentence)
