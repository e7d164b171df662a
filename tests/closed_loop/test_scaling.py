"""Each recipe in the closed loop, while everything works."""

import pytest

from karrot.autoscaling import State
from support.loop import Aws, ClosedLoop
from support.loop_recipes import ASG, ECS, Recipe

_ASG_UNLIKE_ECS = [ASG[name] for name in ("tracking-seconds", "tracking-backlog", "step-messages", "from-zero-backlog")]
_ALL = [*ECS.values(), *_ASG_UNLIKE_ECS]
_USUAL = 40.0


def usual(recipe: Recipe) -> float:
    """Messages a second that leave the fewest tasks of a recipe idle more than not."""
    return _USUAL if recipe.least else 0.0


@pytest.mark.parametrize("recipe", _ALL, ids=str)
def test_it_scales_out_under_a_burst_and_back_in_after_it(recipe: Recipe, aws: Aws) -> None:
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
    assert loop.state("HeartbeatAlarm") is State.OK


@pytest.mark.parametrize("recipe", [ECS["tracking-seconds"], ASG["step-messages"]], ids=str)
def test_a_burst_that_is_more_than_all_can_take_ends_at_the_maximum(recipe: Recipe, aws: Aws) -> None:
    loop = ClosedLoop(recipe, aws, rate=usual(recipe))
    loop.feed(5000)
    loop.run_until(lambda: loop.tasks == recipe.most, within_minutes=25)
    loop.run(20)
    assert {moment.desired for moment in loop.history[-60:]} == {recipe.most}
    assert loop.state("MaxCapacityAlarm") is State.ALARM


@pytest.mark.parametrize("recipe", [each for name, each in ECS.items() if name != "step-seconds"], ids=str)
def test_two_hours_of_quiet_cause_no_action(recipe: Recipe, aws: Aws) -> None:
    interval = "20s" if recipe.fast else "60s"
    loop = ClosedLoop(recipe, aws, rate=usual(recipe), settings={"interval": interval}).run(120)
    assert loop.changes() == []
    assert loop.state("HeartbeatAlarm") is State.OK


@pytest.mark.parametrize("tells_zero", [True, False])
def test_from_zero_wakes_up_whether_or_not_aws_counts_the_tasks_where_there_are_none(
    aws: Aws, *, tells_zero: bool
) -> None:
    loop = ClosedLoop(ECS["from-zero-backlog"], aws, tells_zero=tells_zero).run(10)
    loop.feed(1)
    loop.run(10)
    assert loop.changes() == [(0, 1)]
    assert loop.lag < 100


@pytest.mark.parametrize(("seconds", "tasks"), [(60, 8), (600, 1)])
def test_from_zero_overshoots_where_messages_may_be_no_older_than_waking_up_takes(
    aws: Aws, seconds: int, tasks: int
) -> None:
    """The age of the first message, while nobody read it, is taken for a lack of tasks."""
    loop = ClosedLoop(ECS["from-zero-seconds"].of_seconds(seconds), aws)
    loop.feed(1)
    loop.run(12)
    assert max(moment.desired for moment in loop.history) == tasks
