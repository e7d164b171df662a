"""A stack in front of a load that was recorded: what it would have done.

Simulated time goes in steps of 10 seconds, the finest at which alarms look. What the consumers do not work on grows
old, is published as Karrot would and moves the alarms; what the policies decide changes how much is consumed. The
monitor is taken to be well all the time: every metric is published at every interval.
"""

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from karrot.autoscaling.consumers import Backlog, Consumers, Fleet
from karrot.autoscaling.load import Load
from karrot.autoscaling.series import Metric, RecordedMetrics
from karrot.autoscaling.stack import Activity, NotScaled, Stack

__all__ = ["Moment", "Publishing", "Run", "Signal", "Summary", "signal_of", "simulate"]

STEP_S = 10
FLAP_S = 1800
_MAX_MOMENTS = 1440
_HOUR = 3600


class Signal(StrEnum):
    """What the simulation can tell."""

    LAG = "lag"
    LAG_SECONDS = "lag in seconds"
    HEARTBEAT = "heartbeat"
    RUNNING = "running tasks"
    RUNNING_EACH = "one point of each running task, for its SampleCount alone"

    @property
    def of_aws(self) -> bool:
        """Whether AWS itself publishes it, once a minute; else Karrot does."""
        return self in (Signal.RUNNING, Signal.RUNNING_EACH)


_KARROTS = {
    "Lag": Signal.LAG,
    "ScalableLag": Signal.LAG,
    "LagSeconds": Signal.LAG_SECONDS,
    "Heartbeat": Signal.HEARTBEAT,
}
_AWS = {
    ("ECS/ContainerInsights", "RunningTaskCount"): Signal.RUNNING,
    ("AWS/AutoScaling", "GroupInServiceInstances"): Signal.RUNNING,
    ("AWS/ECS", "CPUUtilization"): Signal.RUNNING_EACH,
}


def signal_of(metric: Metric) -> Signal | None:
    """The signal that a metric is, by its name; ``None`` for one that is not simulated and so never has data."""
    return _AWS.get((metric.namespace, metric.name)) or _KARROTS.get(metric.name)


@dataclass(frozen=True, slots=True)
class Publishing:
    """How Karrot publishes: a value every ``every_s``, of which CloudWatch knows ``delay_s`` after it was observed."""

    every_s: int = 30
    delay_s: int = 30
    resolution_s: int = 60


_BY_AWS = Publishing(every_s=60, delay_s=60)


class Moment(NamedTuple):
    """The state of a moment; the lags are the largest since the moment before."""

    at_s: float
    lag: float
    lag_seconds: float
    desired: int
    running: int


class Summary(NamedTuple):
    """A run in numbers. A flap is a scale-out within half an hour after a scale-in."""

    peak_lag: float
    peak_lag_at_s: float
    peak_lag_seconds: float
    last_lag: float
    least_tasks: int
    most_tasks: int
    at_maximum_s: float
    task_hours: float
    scale_outs: int
    scale_ins: int
    flaps: int


@dataclass(frozen=True, slots=True)
class Run:
    """What happened: moments at even distances, every change of capacity, and why others did not come about."""

    moments: tuple[Moment, ...]
    activities: tuple[Activity, ...]
    not_scaled: Mapping[NotScaled, int]
    unknown_metrics: frozenset[Metric]
    summary: Summary


def simulate(
    stack: Stack, load: Load, consumers: Consumers, *, tasks: int, publishing: Publishing | None = None
) -> Run:
    """Run the stack over the load, from so many running tasks (moved within the limits of the stack)."""
    start = min(max(tasks, stack.minimum), stack.maximum)
    steps = list(_steps(stack, load, consumers, start, publishing or Publishing()))
    activities = tuple(stack.activities)
    return Run(
        moments=_moments(steps, load),
        activities=activities,
        not_scaled=Counter(stack.not_scaled),
        unknown_metrics=frozenset(metric for metric in stack.metrics if signal_of(metric) is None),
        summary=_summary(steps, activities, stack.maximum),
    )


def _steps(stack: Stack, load: Load, consumers: Consumers, tasks: int, publishing: Publishing) -> Iterator[Moment]:
    fleet, backlog = Fleet(consumers, tasks), _first_backlog(load)
    wire = _Wire(stack, publishing)
    now_s = load.start_s
    yield Moment(now_s, backlog.lag, backlog.age(now_s), tasks, tasks)
    while now_s < load.end_s:
        sooner, now_s = now_s, min(now_s + STEP_S, load.end_s)
        backlog.add(sooner, now_s, load.arrived(sooner, now_s))
        backlog.take(fleet.consumable(sooner, now_s))
        values = {
            Signal.LAG: backlog.lag,
            Signal.LAG_SECONDS: backlog.age(now_s),
            Signal.HEARTBEAT: 1.0,
            Signal.RUNNING: float(fleet.running),
        }
        fleet.scale(stack.tick(now_s, wire.carry(now_s, values), fleet.desired), now_s)
        yield Moment(now_s, backlog.lag, backlog.age(now_s), fleet.desired, fleet.running)


def _first_backlog(load: Load) -> Backlog:
    """The lag at the begin, as if it had come at the first rate."""
    backlog = Backlog()
    lag, rate = load.samples[0].lag, load.rates[0]
    backlog.add(load.start_s - (lag / rate if rate else 0), load.start_s, lag)
    return backlog


class _Wire:
    """From an observation to what CloudWatch knows of it."""

    def __init__(self, stack: Stack, publishing: Publishing) -> None:
        longest_s = max((alarm.range_s for alarm in stack.alarms.values()), default=0)
        self._metrics = RecordedMetrics(keep_s=2 * longest_s + _HOUR)
        signals = {metric: signal for metric in stack.metrics if (signal := signal_of(metric))}
        karrots = {metric: signal for metric, signal in signals.items() if not signal.of_aws}
        aws = {metric: signal for metric, signal in signals.items() if signal.of_aws}
        self._publishers = (_Publisher(karrots, publishing), _Publisher(aws, _BY_AWS))

    def carry(self, now_s: float, values: Mapping[Signal, float]) -> RecordedMetrics:
        """What has arrived by now."""
        for publisher in self._publishers:
            publisher.carry(now_s, values, self._metrics)
        return self._metrics


class _Publisher:
    """Observes at even distances and delivers later."""

    def __init__(self, signals: Mapping[Metric, Signal], publishing: Publishing) -> None:
        self._signals = signals
        self._publishing = publishing
        self._under_way: deque[tuple[float, Mapping[Signal, float]]] = deque()
        self._next_s = -math.inf

    def carry(self, now_s: float, values: Mapping[Signal, float], metrics: RecordedMetrics) -> None:
        if now_s >= self._next_s:
            self._next_s = now_s + self._publishing.every_s
            self._under_way.append((now_s, values))
        while self._under_way and self._under_way[0][0] + self._publishing.delay_s <= now_s:
            observed_s, arriving = self._under_way.popleft()
            for metric, signal in self._signals.items():
                for value in _points(signal, arriving):
                    metrics.put(metric, observed_s, value, self._publishing.resolution_s)


def _points(signal: Signal, values: Mapping[Signal, float]) -> list[float]:
    if signal is Signal.RUNNING_EACH:
        return [0.0] * int(values[Signal.RUNNING])
    return [values[signal]]


def _moments(steps: list[Moment], load: Load) -> tuple[Moment, ...]:
    """One for each minute, or for longer stretches of a long recording; no peak is lost."""
    apart = max(6, math.ceil((load.end_s - load.start_s) / STEP_S / _MAX_MOMENTS))
    stretches = [steps[at : at + apart] for at in range(1, len(steps), apart)]
    return (
        steps[0],
        *(
            stretch[-1]._replace(
                lag=max(each.lag for each in stretch), lag_seconds=max(each.lag_seconds for each in stretch)
            )
            for stretch in stretches
        ),
    )


def _summary(steps: list[Moment], activities: tuple[Activity, ...], maximum: int) -> Summary:
    peak = max(steps, key=lambda step: step.lag)
    spans = [(sooner.desired, later.at_s - sooner.at_s) for sooner, later in pairwise(steps)]
    outs = [each.after > each.before for each in activities]
    return Summary(
        peak_lag=peak.lag,
        peak_lag_at_s=peak.at_s,
        peak_lag_seconds=max(step.lag_seconds for step in steps),
        last_lag=steps[-1].lag,
        least_tasks=min(step.desired for step in steps),
        most_tasks=max(step.desired for step in steps),
        at_maximum_s=sum(seconds for tasks, seconds in spans if tasks >= maximum),
        task_hours=sum(tasks * seconds for tasks, seconds in spans) / _HOUR,
        scale_outs=sum(outs),
        scale_ins=len(outs) - sum(outs),
        flaps=sum(_is_flap(sooner, later) for sooner, later in pairwise(activities)),
    )


def _is_flap(sooner: Activity, later: Activity) -> bool:
    taken, given = sooner.after < sooner.before, later.after > later.before
    return taken and given and later.at_s - sooner.at_s <= FLAP_S
