"""Simulates how a stack would have scaled on a recorded load, with its consumers and their backlog.

Simulated time advances in steps of 10 seconds, the shortest interval at which alarms are evaluated. The simulation
publishes the signals that Karrot would send. These metrics drive the alarms, and the policies' decisions change how
much is consumed. The simulation publishes every metric at every interval, except in the silences of the recording.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from karrot.autoscaling.arrival_rate import Load
from karrot.autoscaling.metric_statistics import MetricIdentity, RecordedMetrics
from karrot.autoscaling.scalable_target import Activity, NotScaled, Stack
from karrot.autoscaling.simulation_totals import Account, Moment, RunSummary
from karrot.event import LogEnd
from karrot.eventlog.log_end_history import LogEndHistory

STEP_S = 10
_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Consumers:
    """The abilities of one task. All partitions have equal shares of the work. Tasks without a partition are idle.

    ``start_s`` is the time from the decision to the first message that a new task reads. Every change in the number of
    running tasks pauses all tasks for ``rebalance_s``.
    """

    rate_per_task: float
    start_s: float = 60
    rebalance_s: float = 0
    partitions: int | None = None


class Fleet:
    """The tasks of a service: the desired number of tasks, and the tasks that already run."""

    def __init__(self, consumers: Consumers, tasks: int) -> None:
        self._consumers = consumers
        self._starting: deque[float] = deque()
        self._paused_until_s = float("-inf")
        self.running = tasks

    @property
    def desired(self) -> int:
        """The number of tasks that run or start. Each of these tasks costs money."""
        return self.running + len(self._starting)

    def scale(self, desired: int, now_s: float) -> None:
        """Start or stop tasks. Tasks that are still starting stop first."""
        for _ in range(desired - self.desired):
            self._starting.append(now_s + self._consumers.start_s)
        while self._starting and self.desired > desired:
            self._starting.pop()
        if self.running > desired:
            self._change(desired, now_s)

    def consumable(self, start_s: float, end_s: float) -> float:
        """The messages that the tasks can consume in a time span. Only tasks that started before the span count."""
        ready = sum(at <= start_s for at in self._starting)
        if ready:
            for _ in range(ready):
                self._starting.popleft()
            self._change(self.running + ready, start_s)
        working_s = max(0.0, end_s - max(start_s, self._paused_until_s))
        useful = min(self.running, self._consumers.partitions or self.running)
        return useful * self._consumers.rate_per_task * working_s

    def _change(self, running: int, now_s: float) -> None:
        self.running = running
        self._paused_until_s = now_s + self._consumers.rebalance_s


class MessageBacklog:
    """The unread messages, oldest first, with the time spans in which they arrived."""

    def __init__(self) -> None:
        self._cohorts: deque[tuple[float, float, float]] = deque()
        self.lag = self.written = 0.0

    def add(self, start_s: float, end_s: float, messages: float) -> None:
        """Add messages that arrived evenly from ``start_s`` to ``end_s``."""
        if messages > 0:
            self._cohorts.append((start_s, end_s, messages))
            self.lag += messages
            self.written += messages

    def take(self, messages: float) -> None:
        """Consume this number of messages, or all if there are fewer."""
        while messages > 0 and self._cohorts:
            start_s, end_s, there = self._cohorts.popleft()
            taken = min(messages, there)
            messages -= taken
            self.lag -= taken
            if taken < there:
                begin_s = start_s + (end_s - start_s) * taken / there
                self._cohorts.appendleft((begin_s, end_s, there - taken))
        if not self._cohorts:
            self.lag = 0.0

    def age(self, now_s: float) -> float:
        """The age of the oldest unread message, or 0 without unread messages."""
        return max(0.0, now_s - self._cohorts[0][0]) if self._cohorts else 0.0


class ObservedBacklog:
    """The lag and its age as Karrot knows them: the age comes from the log ends of the verdicts, not from the messages.

    All partitions have equal shares, so the whole topic is like one partition. Its log end is exact, as for `watch`.
    """

    def __init__(self, load: Load, backlog: MessageBacklog) -> None:
        self._backlog = backlog
        self._history = LogEndHistory()
        start_ms = round(1000 * load.start_s)
        if backlog.lag:
            self._history.record([LogEnd(start_ms - round(1000 * backlog.age(load.start_s)), 0)])
        self._history.record([LogEnd(start_ms, round(backlog.lag))])

    def signals(self, now_s: float) -> Mapping["Signal", float]:
        """The signals of a verdict at this time. An unknown age is missing."""
        now_ms, lag = round(1000 * now_s), self._backlog.lag
        written = round(self._backlog.written)
        self._history.record([LogEnd(now_ms, written)])
        values = {Signal.LAG: lag, Signal.HEARTBEAT: 1.0, Signal.STATUS: 1.0}
        age = self._history.age_at(written - math.ceil(lag), now_ms, refresh_ms=0) if lag else None
        if age is not None or not lag:
            values[Signal.LAG_SECONDS] = age.seconds if age else 0.0
        return values


class Signal(StrEnum):
    """The signals that the simulation publishes."""

    LAG = "lag"
    LAG_SECONDS = "lag in seconds"
    HEARTBEAT = "heartbeat"
    STATUS = "status, which is always OK"
    RUNNING = "running tasks"
    RUNNING_EACH = "one point of each running task, for its SampleCount alone"

    @property
    def of_aws(self) -> bool:
        """True if AWS publishes the signal (once a minute), false if Karrot publishes the signal."""
        return self in (Signal.RUNNING, Signal.RUNNING_EACH)


_KARROTS = {
    "Lag": Signal.LAG,
    "ScalableLag": Signal.LAG,
    "LagSeconds": Signal.LAG_SECONDS,
    "ScalableLagSeconds": Signal.LAG_SECONDS,
    "Heartbeat": Signal.HEARTBEAT,
    "Status": Signal.STATUS,
}
_AWS = {
    ("ECS/ContainerInsights", "RunningTaskCount"): Signal.RUNNING,
    ("AWS/AutoScaling", "GroupInServiceInstances"): Signal.RUNNING,
    ("AWS/ECS", "CPUUtilization"): Signal.RUNNING_EACH,
}


def signal_of(metric: MetricIdentity) -> Signal | None:
    """The signal of a metric, by the metric's name. ``None`` for a metric that is not simulated and has no data."""
    return _AWS.get((metric.namespace, metric.name)) or _KARROTS.get(metric.name)


@dataclass(frozen=True, slots=True)
class Publishing:
    """When Karrot publishes: a value every ``every_s`` seconds. CloudWatch has each value ``delay_s`` seconds later."""

    every_s: int = 30
    delay_s: int = 30
    resolution_s: int = 60


_BY_AWS = Publishing(every_s=60, delay_s=60)


@dataclass(frozen=True, slots=True)
class Run:
    """The result: moments at even intervals, all changes of capacity, and the reasons for refused changes."""

    moments: tuple[Moment, ...]
    activities: tuple[Activity, ...]
    not_scaled: Mapping[NotScaled, int]
    unknown_metrics: frozenset[MetricIdentity]
    summary: RunSummary


def simulate(
    stack: Stack, load: Load, consumers: Consumers, *, tasks: int, publishing: Publishing | None = None
) -> Run:
    """Run the stack over the load. It starts with ``tasks`` running tasks, or the nearest number that it allows."""
    start = min(max(tasks, stack.minimum), stack.maximum)
    account = Account(stack.maximum, math.ceil((load.end_s - load.start_s) / STEP_S))
    account.take(_steps(stack, load, consumers, start, publishing or Publishing()))
    activities = tuple(stack.activities)
    return Run(
        moments=account.moments(),
        activities=activities,
        not_scaled=Counter(stack.not_scaled),
        unknown_metrics=frozenset(metric for metric in stack.metrics if signal_of(metric) is None),
        summary=account.summary(activities),
    )


def _steps(stack: Stack, load: Load, consumers: Consumers, tasks: int, publishing: Publishing) -> Iterator[Moment]:
    fleet, backlog = Fleet(consumers, tasks), _first_backlog(load)
    observed = ObservedBacklog(load, backlog)
    wire = _Wire(stack, publishing)
    now_s = load.start_s
    yield Moment(now_s, backlog.lag, backlog.age(now_s), tasks, tasks)
    while now_s < load.end_s:
        sooner, now_s = now_s, min(now_s + STEP_S, load.end_s)
        backlog.add(sooner, now_s, load.arrived(sooner, now_s))
        backlog.take(fleet.consumable(sooner, now_s))
        wire.karrot.carry(now_s, lambda at_s: {} if load.is_silent(at_s) else observed.signals(at_s))
        wire.aws.carry(now_s, lambda _: {Signal.RUNNING: float(fleet.running)})
        fleet.scale(stack.tick(now_s, wire.metrics, fleet.desired), now_s)
        yield Moment(now_s, backlog.lag, backlog.age(now_s), fleet.desired, fleet.running)


def _first_backlog(load: Load) -> MessageBacklog:
    """The backlog at the start. The simulation assumes that its messages arrived at the first arrival rate."""
    backlog = MessageBacklog()
    lag, rate = load.samples[0].lag, load.rates[0]
    backlog.add(load.start_s - (lag / rate if rate else 0), load.start_s, lag)
    return backlog


class _Wire:
    """The points in CloudWatch, and their publishers."""

    def __init__(self, stack: Stack, publishing: Publishing) -> None:
        longest_s = max((alarm.range_s for alarm in stack.alarms.values()), default=0)
        self.metrics = RecordedMetrics(keep_s=2 * longest_s + _HOUR)
        signals = {metric: signal for metric in stack.metrics if (signal := signal_of(metric))}
        karrots = {metric: signal for metric, signal in signals.items() if not signal.of_aws}
        aws = {metric: signal for metric, signal in signals.items() if signal.of_aws}
        self.karrot = _Publisher(karrots, publishing, self.metrics)
        self.aws = _Publisher(aws, _BY_AWS, self.metrics)


class _Publisher:
    """Observes signals at even intervals and delivers the values later."""

    def __init__(
        self, signals: Mapping[MetricIdentity, Signal], publishing: Publishing, metrics: RecordedMetrics
    ) -> None:
        self._signals = signals
        self._publishing = publishing
        self._metrics = metrics
        self._under_way: deque[tuple[float, Mapping[Signal, float]]] = deque()
        self._next_s = -math.inf

    def carry(self, now_s: float, observe: Callable[[float], Mapping[Signal, float]]) -> None:
        """Observe if the interval is over, and deliver what is due by now."""
        if now_s >= self._next_s:
            self._next_s = now_s + self._publishing.every_s
            self._under_way.append((now_s, observe(now_s)))
        while self._under_way and self._under_way[0][0] + self._publishing.delay_s <= now_s:
            observed_s, arriving = self._under_way.popleft()
            for metric, signal in self._signals.items():
                for value in _points(signal, arriving):
                    self._metrics.put(metric, observed_s, value, self._publishing.resolution_s)


def _points(signal: Signal, values: Mapping[Signal, float]) -> list[float]:
    if signal is Signal.RUNNING_EACH:
        return [0.0] * int(values[Signal.RUNNING])
    return [values[signal]] if signal in values else []
