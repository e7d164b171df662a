"""Each recipe in the closed loop while all services work."""

from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest

from support.autoscaling.alarm_model import AlarmState
from support.autoscaling.closed_loop import ClosedLoop, LoopCloudWatch
from support.autoscaling.closed_loop_recipes import ASG, ECS, Recipe
from support.autoscaling.metric_math_evaluator import Gaps
from support.deep_cases import deep_unless

_ASG_UNLIKE_ECS = [ASG[name] for name in ("tracking-seconds", "tracking-backlog", "step-messages", "from-zero-backlog")]
_ALL = [*ECS.values(), *_ASG_UNLIKE_ECS]
# Every kind of recipe, measure and target at least once.
_QUICK = [ECS["tracking-seconds"], ECS["step-messages"], ECS["from-zero-backlog"], ASG["tracking-backlog"]]
_FROM_ZERO = [kit[f"from-zero-{measure}"] for kit in (ECS, ASG) for measure in ("seconds", "backlog")]
_USUAL = 40.0


def usual(recipe: Recipe) -> float:
    """Return a rate, in messages per second, at which a recipe's minimum of tasks is idle most of the time."""
    return _USUAL if recipe.least else 0.0


@pytest.mark.parametrize("recipe", deep_unless(_QUICK, _ALL), ids=str)
def test_a_recipe_scales_out_under_a_burst_and_back_in_after_it(recipe: Recipe, aws: LoopCloudWatch) -> None:
    loop = ClosedLoop(recipe, aws, rate=usual(recipe)).run(3)
    assert loop.changes() == []
    loop.feed(700)
    loop.run_until(lambda: loop.tasks == recipe.most, within_minutes=25)
    loop.run_until(lambda: loop.lag < 1000, within_minutes=60)
    outs = loop.changes()
    assert all(after > before for before, after in outs)
    loop.feed(usual(recipe))
    calm_s = loop.now_s
    loop.run_until(lambda: loop.tasks == recipe.least, within_minutes=70)
    assert loop.changes(calm_s) == [(tasks, tasks - 1) for tasks in range(recipe.most, recipe.least, -1)]
    assert loop.lag < 1000
    assert loop.state("HeartbeatAlarm") is AlarmState.OK


@pytest.mark.parametrize("kind", ["tracking", "step"])
def test_a_batch_is_drained_by_its_age_within_ten_minutes_as_it_is_by_its_size(kind: str, aws: LoopCloudWatch) -> None:
    """The producer falls idle after half a minute: the log-end history knows the age, one event alone does not."""
    last_out_s = {}
    for measure in ("seconds", "messages" if kind == "step" else "backlog"):
        loop = ClosedLoop(ECS[f"{kind}-{measure}"], aws).run(3)
        loop.feed(6000)
        loop.run(0.5)
        loop.feed(0)
        loop.run_until(lambda at=loop: at.lag < 100, within_minutes=9.5)  # type: ignore[misc]
        assert loop.tasks == 8
        last_out_s[measure] = loop.stack.activities[-1].at_s
    by_age, by_size = last_out_s.values()
    assert by_age - by_size <= 300


def test_scheduled_tasks_run_before_a_nightly_batch_and_end_after_it(aws: LoopCloudWatch) -> None:
    recipe = ECS["tracking-backlog"].with_options("--schedule", "08:05-08:30=8")  # the loop starts at 08:00 UTC
    loop = ClosedLoop(recipe, aws, rate=_USUAL).run(9)
    assert loop.changes() == [(1, 8)]
    loop.feed(6000)
    loop.run(0.5)
    loop.feed(_USUAL)
    loop.run_until(lambda: loop.lag < 1000, within_minutes=4.5)
    loop.run(15)
    assert loop.tasks == 8
    loop.run_until(lambda: loop.tasks == 1, within_minutes=60)


_LEAVES_STUCK_PARTITIONS_OUT = [
    each for each in (*ECS.values(), ASG["tracking-backlog"]) if each.least and not each.fast
]


@pytest.mark.parametrize("recipe", deep_unless(_QUICK[:2], _LEAVES_STUCK_PARTITIONS_OUT), ids=str)
def test_a_stuck_partition_adds_no_task_and_raises_an_alarm(recipe: Recipe, aws: LoopCloudWatch) -> None:
    loop = ClosedLoop(recipe, aws, rate=80).run(3)
    loop.stick(3)
    loop.run(90)
    assert loop.changes() == []
    assert loop.lag > 50_000
    assert loop.state("StatusAlarm") is AlarmState.ALARM


@pytest.mark.parametrize("recipe", deep_unless(_QUICK[:2], _LEAVES_STUCK_PARTITIONS_OUT), ids=str)
def test_a_burst_next_to_a_stuck_partition_still_scales_out(recipe: Recipe, aws: LoopCloudWatch) -> None:
    loop = ClosedLoop(recipe, aws, rate=80).run(3)
    loop.stick(3)
    loop.run(30)
    loop.feed(700)
    loop.run_until(lambda: loop.tasks == recipe.most, within_minutes=25)


@pytest.mark.parametrize("recipe", [ECS["tracking-seconds"], ASG["step-messages"]], ids=str)
def test_a_burst_beyond_the_capacity_of_all_tasks_ends_at_the_maximum(recipe: Recipe, aws: LoopCloudWatch) -> None:
    loop = ClosedLoop(recipe, aws, rate=usual(recipe))
    loop.feed(5000)
    loop.run_until(lambda: loop.tasks == recipe.most, within_minutes=25)
    loop.run(20)
    assert {moment.desired for moment in loop.history[-60:]} == {recipe.most}
    assert loop.state("MaxCapacityAlarm") is AlarmState.ALARM


@pytest.mark.parametrize(
    "recipe", deep_unless(_QUICK, [each for name, each in ECS.items() if name != "step-seconds"]), ids=str
)
def test_two_quiet_hours_cause_no_action(recipe: Recipe, aws: LoopCloudWatch) -> None:
    interval = "20s" if recipe.fast else "60s"
    loop = ClosedLoop(recipe, aws, rate=usual(recipe), settings={"interval": interval}).run(120)
    assert loop.changes() == []
    assert loop.state("HeartbeatAlarm") is AlarmState.OK


@pytest.mark.parametrize("tells_zero", [True, False])
def test_from_zero_wakes_up_whether_or_not_aws_counts_zero_tasks(aws: LoopCloudWatch, *, tells_zero: bool) -> None:
    loop = ClosedLoop(ECS["from-zero-backlog"], aws, tells_zero=tells_zero).run(10)
    loop.feed(1)
    loop.run(10)
    assert loop.changes() == [(0, 1)]
    assert loop.lag < 100


def stays_s(loop: ClosedLoop) -> list[float]:
    """Return the lifetime of each started task in seconds; the loop never had more than one task."""
    changes = loop.stack.activities
    assert set(loop.changes()) == {(0, 1), (1, 0)}
    return [stopped.at_s - woken.at_s for woken, stopped in pairwise(changes) if woken.after]


@pytest.mark.parametrize(("rate", "gaps"), [(5.0, Gaps.ZERO), (0.05, Gaps.DROPPED)])
@pytest.mark.parametrize(
    "recipe", deep_unless([ECS["from-zero-seconds"], ASG["from-zero-backlog"]], _FROM_ZERO), ids=str
)
def test_a_few_messages_from_zero_wake_one_task_that_stays_a_quarter_of_an_hour(
    recipe: Recipe, rate: float, gaps: Gaps, aws: LoopCloudWatch
) -> None:
    """The age and number of messages that arrived while no task ran do not mean that tasks are missing."""
    loop = ClosedLoop(recipe, aws, rate=rate, gaps=gaps).run(75)
    stays = stays_s(loop)
    assert len(stays) == 3
    assert min(stays) >= 15 * 60


@pytest.mark.parametrize("gaps", Gaps)
def test_a_few_messages_stop_a_task_early_if_aws_does_not_count_zero_tasks(gaps: Gaps, aws: LoopCloudWatch) -> None:
    loop = ClosedLoop(ECS["from-zero-backlog"], aws, rate=5.0, gaps=gaps, tells_zero=False).run(75)
    usual, *others = stays_s(loop)
    assert usual >= 15 * 60
    assert set(others) == {3 * 60, 8 * 60}
    assert max(moment.lag for moment in loop.history) < 3000


def not_held(template: dict[str, Any]) -> dict[str, Any]:
    """The same as if its measure were that of target tracking from one task."""
    changed = deepcopy(template)
    policy = changed["Resources"]["LagTracking"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    (expression,) = [each for each in policy["CustomizedMetricSpecification"]["Metrics"] if "Expression" in each]
    by_age = expression["Expression"].endswith(", lag)")
    expression["Expression"] = "lag" if by_age else "lag / (running * points / points)"
    return changed


def test_an_age_that_is_not_held_while_no_task_runs_counts_as_missing_tasks(aws: LoopCloudWatch) -> None:
    recipe = ECS["from-zero-seconds"]
    loop = ClosedLoop(recipe, aws, rate=5.0, template=not_held(recipe.template)).run(10)
    assert loop.changes() == [(0, 1), (1, 4), (4, 5)]


def test_a_backlog_that_is_not_held_while_no_task_runs_stops_a_task_two_minutes_after_its_start(
    aws: LoopCloudWatch,
) -> None:
    recipe = ECS["from-zero-backlog"]
    loop = ClosedLoop(recipe, aws, rate=0.05, template=not_held(recipe.template)).run(45)
    usual, *others = stays_s(loop)
    assert usual >= 15 * 60
    assert others == [120, 120]
