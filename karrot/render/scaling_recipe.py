"""Defines the options of a scaling recipe, and checks that they are valid together."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple
from zoneinfo import ZoneInfo

from karrot.render import validation
from karrot.settings import types

MEASURES = {
    "target-tracking": ("max_lag_seconds", "target_lag_per_task"),
    "step": ("max_lag_seconds", "max_lag"),
    "from-zero": ("max_lag_seconds", "target_lag_per_task"),
}
"""The lag options of each recipe. A recipe requires exactly one of its lag options."""

DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")

_ALL_MEASURES = ("max_lag_seconds", "max_lag", "target_lag_per_task")
_MOST_TASKS = 10_000
_MOST_COOLDOWN = 3600
_DAY = 1440
_RANGE = rf"(?:{'|'.join(DAYS)})(?:-(?:{'|'.join(DAYS)}))?"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_SCHEDULE = re.compile(
    rf"(?:(?P<days>{_RANGE}(?:,{_RANGE})*) )?(?P<start>{_TIME})-(?P<end>{_TIME})=(?P<tasks>[0-9]{{1,5}})"
)


class ScheduledMinimum(NamedTuple):
    """A higher minimum of tasks, which begins on ``days`` (0 is Monday) at ``start``, a minute of the day.

    ``minutes`` is the duration, at most a day.
    """

    days: tuple[int, ...]
    start: int
    minutes: int
    tasks: int

    @property
    def end(self) -> tuple[tuple[int, ...], int]:
        """The days and the minute of the day at which the usual minimum returns. The days can differ from ``days``."""
        later, minute = divmod(self.start + self.minutes, _DAY)
        return tuple(sorted((day + later) % len(DAYS) for day in self.days)), minute

    @property
    def times(self) -> set[int]:
        """The minutes of the week in which the higher minimum is in force, and the minute of each end."""
        begins = (day * _DAY + self.start for day in self.days)
        return {(begin + minute) % (len(DAYS) * _DAY) for begin in begins for minute in range(self.minutes + 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The options of a recipe: the consumer group, the scaled service or instances, and the recipe.

    Lags are in messages, except ``max_lag_seconds``; cooldowns are in seconds. Raises `ValueError` with one message per
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
    schedule: tuple[str, ...] = ()
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        validation.refuse(_problems(self))

    @property
    def least(self) -> int:
        """The minimum number of tasks or instances."""
        if self.min_tasks is not None:
            return self.min_tasks
        return 0 if self.recipe == "from-zero" else 1

    @property
    def scheduled(self) -> tuple[ScheduledMinimum, ...]:
        return tuple(_scheduled(text) for text in self.schedule)

    @property
    def measure(self) -> str:
        """The name of the lag option that was given."""
        return next(name for name in _ALL_MEASURES if getattr(self, name) is not None)

    @property
    def threshold(self) -> float:
        """The value of the lag option that was given."""
        return float(getattr(self, self.measure))

    @property
    def measured(self) -> str:
        """The metric that the policies read. A ``Scalable`` metric leaves out stuck partitions, which no task helps.

        While no task runs, every partition is stuck. So a recipe that may stop the last task reads the full metric.
        """
        metric = "LagSeconds" if self.measure == "max_lag_seconds" else "Lag"
        return f"Scalable{metric}" if self.least else metric

    @property
    def counts_samples(self) -> bool:
        """Whether running tasks are counted by the samples of their CPU utilization.

        The recipe from-zero does not use this count: without a task there is no sample, so the count never becomes 0.
        """
        return self.on_ecs and not self.container_insights and self.recipe != "from-zero"

    @property
    def on_ecs(self) -> bool:
        """Whether the recipe scales tasks of an ECS service, and not instances of an Auto Scaling group."""
        return self.target == "ecs"


def _problems(asked: Scaling) -> Iterator[str]:
    if asked.on_ecs:
        yield from validation.ecs_name("--ecs-cluster", asked.ecs_cluster)
        yield from validation.ecs_name("--service", asked.service)
    else:
        yield from validation.asg_name(asked.asg_name)
    given = [name for name in _ALL_MEASURES if getattr(asked, name) is not None]
    allowed = MEASURES[asked.recipe]
    refused = (
        (asked.on_ecs and asked.asg_name is not None, "--asg-name goes with --target asg"),
        (
            not asked.on_ecs and (asked.ecs_cluster, asked.service) != (None, None),
            "--ecs-cluster and --service go with --target ecs",
        ),
        (not asked.on_ecs and asked.container_insights, "--container-insights goes with --target ecs"),
        (
            not asked.on_ecs and asked.scale_in_cooldown is not None,
            "--scale-in-cooldown goes with --target ecs: an Auto Scaling group has the warm-up of its instances",
        ),
        (
            len(given) != 1 or given[0] not in allowed,
            f"--recipe {asked.recipe} takes either {' or '.join(map(_option, allowed))}",
        ),
        (asked.wake_up_lag != 1 and asked.recipe != "from-zero", "--wake-up-lag goes with --recipe from-zero"),
        (
            asked.high_resolution and asked.recipe != "step",
            (
                "--high-resolution needs --recipe step: target tracking of ECS services has periods of 60 s only, and "
                "an instance takes minutes to start"
            ),
        ),
        (
            not 0 <= asked.least < asked.max_tasks <= _MOST_TASKS,
            (
                f"--min-tasks is {asked.least} and --max-tasks is {asked.max_tasks}: --max-tasks must be larger, and "
                f"both must be 0 to {_MOST_TASKS}"
            ),
        ),
        (
            asked.recipe == "from-zero" and asked.least != 0,
            "--recipe from-zero needs --min-tasks 0. For 1 or more tasks, use --recipe target-tracking",
        ),
        (
            asked.recipe == "target-tracking" and asked.least == 0,
            "--recipe target-tracking needs --min-tasks 1 or more: only --recipe from-zero scales out from 0",
        ),
        (
            asked.recipe == "step" and asked.least == 0 and asked.max_lag is None,
            "--min-tasks 0 needs --max-lag: without commits, the age of the lag may be unknown",
        ),
    )
    yield from (sentence for is_wrong, sentence in refused if is_wrong)
    for name in (*given, "wake_up_lag"):
        yield from validation.number(_option(name), getattr(asked, name))
    yield from validation.whole("--scale-out-cooldown", asked.scale_out_cooldown, 0, _MOST_COOLDOWN)
    yield from validation.whole("--scale-in-cooldown", asked.scale_in_cooldown, 0, _MOST_COOLDOWN)
    yield from _problems_of_schedule(asked)
    yield from validation.free_text("--cluster", asked.burrow_cluster)
    yield from validation.free_text("--group", asked.group)
    yield from validation.of_kind(types.namespace, "--namespace", asked.namespace)
    yield from validation.topic(asked.sns_topic_arn)


def _problems_of_schedule(asked: Scaling) -> Iterator[str]:
    try:
        if asked.timezone != "UTC":
            ZoneInfo(asked.timezone)
    except (ValueError, OSError, KeyError):
        yield f"--timezone is {types.quoted(asked.timezone)}: it must be the name of a time zone, such as Europe/Paris"
    try:
        scheduled = asked.scheduled
    except ValueError as error:
        yield str(error)
        return
    for text, each in zip(asked.schedule, scheduled, strict=True):
        if not asked.least < each.tasks <= asked.max_tasks:
            yield (
                f"--schedule is {types.quoted(text)}: the number of tasks must be above --min-tasks ({asked.least}) "
                f"and at most --max-tasks ({asked.max_tasks})"
            )
    if any(one.times & other.times for one, other in combinations(scheduled, 2)):
        yield "--schedule: two of the times overlap or touch, so the number of tasks would be ambiguous"


def _scheduled(text: str) -> ScheduledMinimum:
    """Parse a scheduled minimum, such as ``MON-FRI 22:00-02:00=8``. Raises `ValueError` with a message."""
    found = _SCHEDULE.fullmatch(text.strip().upper())
    if found is None or found["start"] == found["end"]:
        raise ValueError(
            f"--schedule is {types.quoted(text)}: it must be [DAYS ]HH:MM-HH:MM=TASKS, such as 01:55-04:00=8 or "
            "'MON-FRI 22:00-02:00=8', with two different times"
        )
    start, end = (60 * int(found[name][:2]) + int(found[name][3:]) for name in ("start", "end"))
    days = set()
    for part in (found["days"] or "MON-SUN").split(","):
        first, _, last = part.partition("-")
        begin = DAYS.index(first)
        length = (DAYS.index(last or first) - begin) % len(DAYS)
        days |= {(begin + day) % len(DAYS) for day in range(length + 1)}
    return ScheduledMinimum(tuple(sorted(days)), start, (end - start) % _DAY, int(found["tasks"]))


def _option(attribute: str) -> str:
    return f"--{attribute.replace('_', '-')}"
