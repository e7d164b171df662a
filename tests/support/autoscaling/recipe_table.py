"""Runs each recipe through each situation of docs/cloudwatch.md in the closed loop, and makes the table of that page.

To write the table into the page: ``PYTHONPATH=tests python -m support.autoscaling.recipe_table``
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from support.autoscaling.closed_loop import Burrow, ClosedLoop, LoopCloudWatch
from support.autoscaling.closed_loop_recipes import ECS, Recipe
from support.burrow.fake.fake_burrow import Post
from support.reporters.injected_faults import UNAVAILABLE

RECIPES: Final = {
    "`target-tracking` by messages": ECS["tracking-backlog"],
    "`target-tracking` by age": ECS["tracking-seconds"],
    "`step` by messages": ECS["step-messages"],
    "`step` by age": ECS["step-seconds"],
    "`from-zero` by messages": ECS["from-zero-backlog"],
    "`from-zero` by age": ECS["from-zero-seconds"],
}
PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "cloudwatch.md"
_BEGIN: Final = "<!-- made by tests/support/autoscaling/recipe_table.py -->\n\n"
_END: Final = "\n\n<!-- end of the table -->"
_USUAL = 40.0
_READ = 500.0
_ALARMS: Final = {
    "StatusAlarm": "status",
    "NoLagAlarm": "missing lag",
    "MaxCapacityAlarm": "maximum",
    "HeartbeatAlarm": "heartbeat",
}


def _burst(loop: ClosedLoop) -> None:
    loop.feed(700)
    loop.run(20)
    loop.feed(_USUAL)
    loop.run(90)


def _batch(loop: ClosedLoop) -> None:
    loop.feed(6000)
    loop.run(0.5)
    loop.feed(0)
    loop.run(30)


def _stuck_partition(loop: ClosedLoop) -> None:
    loop.feed(80)
    loop.stick(3)
    loop.run(90)


def _dead_consumer(loop: ClosedLoop) -> None:
    loop.feed(_USUAL)
    loop.kill_consumers()
    loop.run(60)


def _in_a_burst(fail: Callable[[ClosedLoop], None]) -> Callable[[ClosedLoop], None]:
    def situation(loop: ClosedLoop) -> None:
        loop.feed(700)
        loop.run(5)
        fail(loop)
        loop.run(40)

    return situation


class _SilentBurrow:
    """A Burrow that posts nothing, while the consumers go on."""

    def __init__(self, burrow: Burrow) -> None:
        self._burrow = burrow

    def due(self, now_ms: int) -> list[Post]:
        self._burrow.due(now_ms)
        return []


def _kill_burrow(loop: ClosedLoop) -> None:
    assert loop.burrow is not None
    loop.burrow = _SilentBurrow(loop.burrow)


def _kill_karrot(loop: ClosedLoop) -> None:
    loop.karrot.kill()


def _stop_cloudwatch_for_ten_minutes(loop: ClosedLoop) -> None:
    loop.aws.fake.stand(UNAVAILABLE)
    loop.run(10)
    loop.aws.fake.clear()


def _idle_producer(loop: ClosedLoop) -> None:
    loop.feed(0)
    loop.run(60)


SITUATIONS: Final[Mapping[str, Callable[[ClosedLoop], None]]] = {
    "a burst: 700 messages/s for 20 min": _burst,
    "a batch: 180,000 messages in 30 s, then an idle producer": _batch,
    "one of 8 partitions is stuck for 90 min, 80 messages/s": _stuck_partition,
    "the tasks run but read nothing, for 60 min": _dead_consumer,
    "Burrow dies 5 min into a burst": _in_a_burst(_kill_burrow),
    "Karrot dies 5 min into a burst": _in_a_burst(_kill_karrot),
    "CloudWatch is down for 10 min of a burst": _in_a_burst(_stop_cloudwatch_for_ten_minutes),
    "the producer is idle for 60 min": _idle_producer,
}


def outcome(recipe: Recipe, situation: Callable[[ClosedLoop], None], aws: LoopCloudWatch) -> str:
    """Return the cell of a recipe in a situation: the tasks, when all messages were read, and the alarms."""
    loop = ClosedLoop(recipe, aws, rate=_USUAL if recipe.least else 0.0).run(10)
    began_s, before = loop.now_s, loop.tasks
    loop.fired.clear()
    situation(loop)
    return "; ".join(_facts(loop, began_s, before))


def _facts(loop: ClosedLoop, began_s: float, before: int) -> Iterator[str]:
    seen = [moment for moment in loop.history if moment.at_s > began_s]
    most = max(moment.desired for moment in seen)
    if most > before:
        reached_s = next(moment.at_s for moment in seen if moment.desired == most)
        yield f"{before} to {_counted(most)} in {_minutes(reached_s - began_s)}"
    worst = max(seen, key=lambda moment: moment.lag)
    if worst.lag > _READ and (read := [each for each in seen if each.at_s > worst.at_s and each.lag < _READ]):
        yield f"all read after {_minutes(read[0].at_s - began_s)}"
    last = seen[-1].desired
    if last != most:
        yield f"{_counted(last)} at the end"
    elif most == before:
        yield f"stays at {_counted(last)}"
    if fired := [name for alarm, name in _ALARMS.items() if alarm in loop.fired]:
        yield f"alarm: {', '.join(fired)}"


def _counted(tasks: int) -> str:
    return f"{tasks} task{'' if tasks == 1 else 's'}"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def row(situation: str, aws: LoopCloudWatch) -> str:
    """Return the row of a situation: a cell for each recipe."""
    cells = (outcome(recipe, SITUATIONS[situation], aws) for recipe in RECIPES.values())
    return f"| {situation} | {' | '.join(cells)} |"


def documented() -> list[str]:
    """Return the rows of the table in the page, below its head."""
    return PAGE.read_text(encoding="utf-8").partition(_BEGIN)[2].partition(_END)[0].split("\n")[2:]


if __name__ == "__main__":
    with LoopCloudWatch() as aws:
        head = [f"| | {' | '.join(RECIPES)} |", f"| --- |{' --- |' * len(RECIPES)}"]
        made = "\n".join([*head, *(row(situation, aws) for situation in SITUATIONS)])
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(f"{text.partition(_BEGIN)[0]}{_BEGIN}{made}{_END}{text.partition(_END)[2]}", encoding="utf-8")
