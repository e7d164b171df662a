"""Defines the options of a scaling recipe, and checks that they can work."""

from collections.abc import Iterator
from dataclasses import dataclass

from karrot.render import validation
from karrot.settings import types

TARGETS = ("ecs", "asg")
FORMATS = ("cloudformation", "terraform")

MEASURES = {
    "target-tracking": ("max_lag_seconds", "target_lag_per_task"),
    "step": ("max_lag_seconds", "max_lag"),
    "from-zero": ("max_lag_seconds", "target_lag_per_task"),
}
"""The lag options of each recipe. Exactly one of them is required."""

ALL_MEASURES = ("max_lag_seconds", "max_lag", "target_lag_per_task")
RECIPES = tuple(MEASURES)

_MOST_TASKS = 10_000
_MOST_COOLDOWN = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The options of a recipe: the consumer group, the scaled service or instances, and the recipe.

    Lags are in messages, except ``max_lag_seconds``; cooldowns are in seconds. Raises `ValueError` with a sentence per
    line for wrong options.
    """

    recipe: str
    target: str = "ecs"
    ecs_cluster: str | None = None
    service: str | None = None
    asg_name: str | None = None
    burrow_cluster: str
    group: str
    max_lag_seconds: float | None = None
    max_lag: float | None = None
    target_lag_per_task: float | None = None
    wake_up_lag: float = 1
    min_tasks: int | None = None
    max_tasks: int
    scale_out_cooldown: int | None = None
    scale_in_cooldown: int | None = None
    high_resolution: bool = False
    container_insights: bool = False
    namespace: str = "Karrot"
    sns_topic_arn: str | None = None
    shared: bool = True

    def __post_init__(self) -> None:
        validation.refuse(_problems(self))

    @property
    def least(self) -> int:
        """The minimum number of tasks or instances."""
        if self.min_tasks is not None:
            return self.min_tasks
        return 0 if self.recipe == "from-zero" else 1

    @property
    def measure(self) -> str:
        """The name of the lag option that was given."""
        return next(name for name in ALL_MEASURES if getattr(self, name) is not None)

    @property
    def measured(self) -> str:
        """The metric that the policies read. A stuck partition is in ``Lag`` and ``LagSeconds``; no task helps it.

        While no task runs, every partition is stuck. So a recipe that may stop the last task reads these two.
        """
        metric = "LagSeconds" if self.measure == "max_lag_seconds" else "Lag"
        return f"Scalable{metric}" if self.least else metric

    @property
    def counts_samples(self) -> bool:
        """Whether running tasks are counted by the samples of their CPU utilization.

        Without a task there is no sample, so the last count would go on. Only the recipe from zero needs the zero.
        """
        return self.on_ecs and not self.container_insights and self.recipe != "from-zero"

    @property
    def on_ecs(self) -> bool:
        """True if the recipe scales tasks of an ECS service, false if it scales instances of an Auto Scaling group."""
        return self.target == "ecs"


def _problems(asked: Scaling) -> Iterator[str]:
    if asked.recipe not in RECIPES:
        yield f"--recipe is {types.quoted(asked.recipe)}: it must be one of {', '.join(RECIPES)}"
        return
    if asked.target not in TARGETS:
        yield f"--target is {types.quoted(asked.target)}: it must be one of {', '.join(TARGETS)}"
    elif asked.on_ecs:
        yield from validation.ecs_name("--ecs-cluster", asked.ecs_cluster)
        yield from validation.ecs_name("--service", asked.service)
        if asked.asg_name is not None:
            yield "--asg-name goes with --target asg"
    else:
        yield from validation.asg_name(asked.asg_name)
        if asked.ecs_cluster is not None or asked.service is not None:
            yield "--ecs-cluster and --service go with --target ecs"
        if asked.container_insights:
            yield "--container-insights goes with --target ecs"
        if asked.scale_in_cooldown is not None:
            yield "--scale-in-cooldown goes with --target ecs: an Auto Scaling group has the warm-up of its instances"
    yield from _problems_of_measure(asked)
    yield from _problems_of_counts(asked)
    yield from _problems_of_texts(asked)


def _problems_of_measure(asked: Scaling) -> Iterator[str]:
    given = [name for name in ALL_MEASURES if getattr(asked, name) is not None]
    allowed = MEASURES[asked.recipe]
    if len(given) != 1 or given[0] not in allowed:
        yield f"--recipe {asked.recipe} takes either {' or '.join(map(_option, allowed))}"
    for name in (*given, "wake_up_lag"):
        yield from validation.number(_option(name), getattr(asked, name))
    if asked.wake_up_lag != 1 and asked.recipe != "from-zero":
        yield "--wake-up-lag goes with --recipe from-zero"
    if asked.high_resolution and asked.recipe != "step":
        reason = "target tracking of ECS services has periods of 60 s only, and an instance takes minutes to start"
        yield f"--high-resolution needs --recipe step: {reason}"


def _problems_of_counts(asked: Scaling) -> Iterator[str]:
    if not 0 <= asked.least < asked.max_tasks <= _MOST_TASKS:
        yield (
            f"--min-tasks is {asked.least} and --max-tasks is {asked.max_tasks}: "
            f"--max-tasks must be larger, and both must be 0 to {_MOST_TASKS}"
        )
    if asked.recipe == "from-zero" and asked.least != 0:
        yield "--recipe from-zero needs --min-tasks 0. For 1 or more tasks, use --recipe target-tracking"
    if asked.recipe == "target-tracking" and asked.least == 0:
        yield "--recipe target-tracking needs --min-tasks 1 or more: only --recipe from-zero scales out from 0"
    if asked.recipe == "step" and asked.least == 0 and asked.max_lag is None:
        yield "--min-tasks 0 needs --max-lag: without commits, the age of the lag may be unknown"
    yield from validation.whole("--scale-out-cooldown", asked.scale_out_cooldown, 0, _MOST_COOLDOWN)
    yield from validation.whole("--scale-in-cooldown", asked.scale_in_cooldown, 0, _MOST_COOLDOWN)


def _problems_of_texts(asked: Scaling) -> Iterator[str]:
    yield from validation.free_text("--burrow-cluster", asked.burrow_cluster)
    yield from validation.free_text("--group", asked.group)
    yield from validation.of_kind(types.namespace, "--namespace", asked.namespace)
    yield from validation.topic(asked.sns_topic_arn)


def _option(attribute: str) -> str:
    return f"--{attribute.replace('_', '-')}"
