"""Each recipe in the closed loop while a service between the lag and the alarms is down."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from support.autoscaling.alarm_model import AlarmState
from support.autoscaling.closed_loop import ClosedLoop, LoopCloudWatch
from support.autoscaling.closed_loop_recipes import ASG, CLUSTER, ECS, GROUP, TOPIC_ARN, Recipe
from support.autoscaling.metric_math_evaluator import Gaps
from support.autoscaling.scaled_consumer_group import RestartedBurrow
from support.deep_cases import deep_unless
from support.reporters.injected_faults import UNAVAILABLE

_OF_ECS = [
    each for name, each in ECS.items() if name != "step-seconds"
]  # the same as step-messages except for the unit
_ALL = [*_OF_ECS, *(ASG[name] for name in ("tracking-seconds", "tracking-backlog", "step-messages"))]
_SOME = [ECS["tracking-seconds"], ECS["step-messages"], ECS["from-zero-backlog"], ASG["tracking-backlog"]]
_FLOOD = 5000.0


def kill_karrot(loop: ClosedLoop) -> None:
    loop.karrot.kill()


def kill_burrow(loop: ClosedLoop) -> None:
    loop.burrow = None


_KILLS = pytest.mark.parametrize("kill", [kill_karrot, kill_burrow])
Kill = Callable[[ClosedLoop], None]


def range_s(loop: ClosedLoop, *, upwards: bool) -> int:
    """Return the longest evaluation range of the alarms that add tasks, or of the alarms that remove tasks."""
    acting = [alarm for alarm in loop.stack.alarms.values() if any(alarm.actions.values())]
    return max(alarm.range_s for alarm in acting if alarm.comparison.upwards is upwards)


def assert_no_policy_is_called_any_more(loop: ClosedLoop) -> None:
    calls = len(loop.stack.activities), dict(loop.stack.not_scaled)
    loop.run(60)
    assert (len(loop.stack.activities), dict(loop.stack.not_scaled)) == calls


@_KILLS
@pytest.mark.parametrize("recipe", _ALL, ids=str)
def test_scaling_stops_when_the_monitor_dies_during_high_lag(recipe: Recipe, aws: LoopCloudWatch, kill: Kill) -> None:
    loop = ClosedLoop(recipe, aws, tasks=2, rate=40)
    loop.feed(_FLOOD)
    loop.run_until(lambda: loop.tasks > 2, within_minutes=10)
    kill(loop)
    loop.run(range_s(loop, upwards=True) / 60)
    assert_no_policy_is_called_any_more(loop)
    assert all(after > before for before, after in loop.changes())
    assert loop.lag > _FLOOD * 3600 / 2


@pytest.mark.parametrize("recipe", _SOME, ids=str)
def test_tasks_are_removed_for_at_most_the_evaluation_range_after_the_monitor_dies(
    recipe: Recipe, aws: LoopCloudWatch
) -> None:
    loop = ClosedLoop(recipe.up_to(30), aws, tasks=30, rate=40)
    loop.run_until(lambda: loop.tasks < 30, within_minutes=20)
    loop.karrot.kill()
    loop.feed(_FLOOD)
    loop.run(range_s(loop, upwards=False) / 60)
    assert_no_policy_is_called_any_more(loop)
    assert loop.tasks > 10


@_KILLS
@pytest.mark.parametrize("recipe", [ECS["step-messages"], ASG["tracking-seconds"]], ids=str)
def test_the_heartbeat_alarm_fires_when_the_monitor_dies_and_scales_nothing(
    recipe: Recipe, aws: LoopCloudWatch, kill: Kill
) -> None:
    loop = ClosedLoop(recipe, aws, rate=40).run(10)
    assert loop.state("HeartbeatAlarm") is AlarmState.OK
    kill(loop)
    loop.run(10)
    assert loop.state("HeartbeatAlarm") is AlarmState.ALARM
    assert loop.stack.alarms["HeartbeatAlarm"].actions == {}
    assert recipe.template["Resources"]["HeartbeatAlarm"]["Properties"]["AlarmActions"] == [TOPIC_ARN]
    assert loop.changes() == []


@pytest.mark.parametrize("recipe", _SOME, ids=str)
def test_scaling_continues_when_karrot_is_back(recipe: Recipe, aws: LoopCloudWatch) -> None:
    loop = ClosedLoop(recipe, aws, tasks=2, rate=40).run(2)
    loop.karrot.kill()
    loop.feed(700)
    loop.run(10)
    assert (loop.changes(), loop.state("HeartbeatAlarm")) == ([], AlarmState.ALARM)
    loop.karrot.start()
    loop.run_until(lambda: loop.tasks > 2, within_minutes=10)
    assert loop.state("HeartbeatAlarm") is AlarmState.OK


@pytest.mark.parametrize("recipe", deep_unless(_SOME, _OF_ECS), ids=str)
def test_a_cloudwatch_outage_of_five_minutes_in_a_burst_only_delays_scaling(
    recipe: Recipe, aws: LoopCloudWatch
) -> None:
    loop = ClosedLoop(recipe, aws, tasks=2, rate=40).run(2)
    loop.feed(700)
    aws.fake.stand(UNAVAILABLE)
    loop.run(5)
    assert loop.changes() == []
    aws.fake.clear()
    aws.fake.forget()
    loop.forget()
    back_ms = loop.clock.wall
    loop.run(1)
    of = {"Cluster": CLUSTER, "ConsumerGroup": GROUP}
    lags = [point.timestamp_ms for point in aws.fake.points("Karrot", recipe.measured, of)]
    assert lags
    assert min(lags) >= back_ms - 60_000
    loop.run_until(lambda: loop.tasks == recipe.most, within_minutes=10)
    loop.run_until(lambda: loop.lag < 1000, within_minutes=60)
    assert loop.karrot.dropped() == {}


def naive(template: dict[str, Any]) -> dict[str, Any]:
    """Return the same recipe with the expression that people usually write first."""
    changed = deepcopy(template)
    policy = changed["Resources"]["LagTracking"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    (expression,) = [each for each in policy["CustomizedMetricSpecification"]["Metrics"] if "Expression" in each]
    expression["Expression"] = "lag / running"
    return changed


@pytest.mark.parametrize("gaps", Gaps)
@_KILLS
def test_backlog_per_task_removes_no_task_while_the_monitor_is_dead_for_either_reading_of_missing_values(
    gaps: Gaps, aws: LoopCloudWatch, kill: Kill
) -> None:
    loop = ClosedLoop(ECS["tracking-backlog"], aws, tasks=6, rate=40, gaps=gaps)
    loop.feed(_FLOOD)
    loop.run(2)
    kill(loop)
    loop.run(60)
    assert [after for before, after in loop.changes() if after < before] == []


@pytest.mark.parametrize(("gaps", "left"), [(Gaps.ZERO, 1), (Gaps.DROPPED, 8)])
def test_lag_divided_by_running_tasks_alone_fails_if_missing_values_are_read_as_zero(
    gaps: Gaps, left: int, aws: LoopCloudWatch
) -> None:
    recipe = ECS["tracking-backlog"]
    loop = ClosedLoop(recipe, aws, tasks=8, rate=40, gaps=gaps, template=naive(recipe.template))
    loop.feed(_FLOOD)
    loop.run(2)
    loop.karrot.kill()
    loop.run(60)
    assert loop.tasks == left


def restart_burrow(loop: ClosedLoop, recipe: Recipe) -> None:
    """Start a new Burrow, which reports on the commits that it has read so far."""
    loop.burrow = RestartedBurrow(CLUSTER, GROUP, loop.topic, start_ms=loop.clock.wall, every_s=recipe.reports_every_s)


@pytest.mark.parametrize("settings", [{"metrics": "MaxLag"}, {"exclude": GROUP}], ids=["metrics", "exclude"])
def test_a_group_that_is_not_published_raises_an_alarm_while_the_heartbeat_is_well(
    settings: dict[str, str], aws: LoopCloudWatch
) -> None:
    loop = ClosedLoop(ECS["tracking-backlog"], aws, rate=40, settings=settings).run(20)
    assert loop.state("NoLagAlarm") is AlarmState.ALARM
    assert loop.state("HeartbeatAlarm") is AlarmState.OK
    assert loop.changes() == []


@pytest.mark.parametrize("recipe", _OF_ECS, ids=str)
def test_verdicts_of_a_just_started_burrow_scale_nothing_with_min_complete(recipe: Recipe, aws: LoopCloudWatch) -> None:
    loop = ClosedLoop(recipe, aws, tasks=2, rate=40, settings={"min_complete": "0.5"}).run(2)
    restart_burrow(loop, recipe)
    loop.run(6)
    assert loop.changes() == []
    assert loop.karrot.dropped()["incomplete"] >= 12


@pytest.mark.parametrize("recipe", _OF_ECS, ids=str)
def test_verdicts_of_a_just_started_burrow_scale_out_without_min_complete(recipe: Recipe, aws: LoopCloudWatch) -> None:
    """Burrow takes all partitions for stopped, and a recipe from one task leaves stopped partitions out."""
    loop = ClosedLoop(recipe, aws, tasks=2, rate=40).run(2)
    restart_burrow(loop, recipe)
    loop.run(6)
    assert loop.tasks == (2 if recipe.least else recipe.most)
