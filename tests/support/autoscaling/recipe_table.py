"""Runs each recipe through each situation of docs/cloudwatch.md in the closed loop, and makes the tables of that page.

To write the tables into the page: ``PYTHONPATH=tests python -m support.autoscaling.recipe_table``
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from support.autoscaling.closed_loop import Burrow, ClosedLoop, LoopCloudWatch
from support.autoscaling.closed_loop_recipes import ECS, Recipe
from support.burrow.fake.fake_burrow import Post
from support.reporters.injected_faults import UNAVAILABLE

RECIPES: Final[Mapping[str, Mapping[str, Recipe]]] = {
    "by messages": {
        "`target-tracking`": ECS["tracking-backlog"],
        "`step`": ECS["step-messages"],
        "`from-zero`": ECS["from-zero-backlog"],
    },
    "by age": {
        "`target-tracking`": ECS["tracking-seconds"],
        "`step`": ECS["step-seconds"],
        "`from-zero`": ECS["from-zero-seconds"],
    },
}
"""The tables of the page, and the recipes that are their columns."""
PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "cloudwatch.md"
_BEGIN: Final = "<!-- made by tests/support/autoscaling/recipe_table.py -->\n\n"
_END: Final = "\n\n<!-- end of the table -->"
_USUAL = 40.0
_READ = 500.0
_ALARMS: Final = {"StatusAlarm": "S", "NoLagAlarm": "L", "MaxCapacityAlarm": "M", "HeartbeatAlarm": "H"}


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


SITUATIONS: Final[Mapping[str, tuple[Callable[[ClosedLoop], None], ...]]] = {
    "a burst: 700 messages/s for 20 min": (_burst,),
    "a batch: 180,000 messages in 30 s, then none": (_batch,),
    "one of 8 partitions stuck for 90 min, 80 messages/s": (_stuck_partition,),
    "the tasks read nothing for 60 min": (_dead_consumer,),
    "Burrow or Karrot dies 5 min into a burst": (_in_a_burst(_kill_burrow), _in_a_burst(_kill_karrot)),
    "CloudWatch is down for 10 min of a burst": (_in_a_burst(_stop_cloudwatch_for_ten_minutes),),
}


def cell(recipe: Recipe, situation: str, aws: LoopCloudWatch) -> str:
    """Return the cell of a recipe in a situation: the tasks, when all messages were read (minutes), and the alarms."""
    [told] = {_outcome(recipe, each, aws) for each in SITUATIONS[situation]}
    return told


def _outcome(recipe: Recipe, situation: Callable[[ClosedLoop], None], aws: LoopCloudWatch) -> str:
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
        yield f"{most} in {_minutes(reached_s - began_s)}"
    worst = max(seen, key=lambda moment: moment.lag)
    if worst.lag > _READ and (read := [each for each in seen if each.at_s > worst.at_s and each.lag < _READ]):
        yield f"read {_minutes(read[0].at_s - began_s)}"
    last = seen[-1].desired
    if last != most:
        yield f"end {last}"
    elif most == before:
        yield f"stays at {last}"
    if fired := [letter for alarm, letter in _ALARMS.items() if alarm in loop.fired]:
        yield ",\u00a0".join(fired)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f}"


def row(table: str, situation: str, aws: LoopCloudWatch) -> str:
    """Return the row of a situation in a table: a cell for each recipe."""
    cells = (cell(recipe, situation, aws) for recipe in RECIPES[table].values())
    return f"| {situation} | {' | '.join(cells)} |"


def documented(table: str) -> list[str]:
    """Return the rows of a table of the page, below its head."""
    made = PAGE.read_text(encoding="utf-8").partition(_BEGIN)[2].partition(_END)[0]
    [lines] = [each.split("\n") for each in made.split("\n\n") if each.startswith(f"| {table} |")]
    return lines[2:]


def _table(table: str, aws: LoopCloudWatch) -> str:
    head = [f"| {table} | {' | '.join(RECIPES[table])} |", f"| --- |{' --- |' * len(RECIPES[table])}"]
    return "\n".join([*head, *(row(table, situation, aws) for situation in SITUATIONS)])


if __name__ == "__main__":
    with LoopCloudWatch() as aws:
        made = "\n\n".join(_table(each, aws) for each in RECIPES)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN.rstrip())
    after = rest.partition(_END.lstrip())[2]
    PAGE.write_text(f"{before}{_BEGIN}{made}{_END}{after}", encoding="utf-8")
