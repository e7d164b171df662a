"""Models the tasks of a service that scales, and names the signals of the metrics that alarms read."""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from support.autoscaling.metric_statistics import MetricIdentity

__all__ = ["Consumers", "Fleet", "Signal", "signal_of"]


@dataclass(frozen=True, slots=True)
class Consumers:
    """The abilities of one task. All partitions have equal shares of the work. Tasks without a partition are idle.

    ``start_s`` is the time from the decision to the first message that a new task reads.
    """

    rate_per_task: float
    start_s: float
    partitions: int


class Fleet:
    """The tasks of a service: the desired number of tasks, and the tasks that already run."""

    def __init__(self, consumers: Consumers, tasks: int) -> None:
        self._consumers = consumers
        self._starting: deque[float] = deque()
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
        self.running = min(self.running, desired)

    def consumable(self, start_s: float, end_s: float) -> float:
        """The messages that the tasks can consume in a time span. Only tasks that started before the span count."""
        while self._starting and self._starting[0] <= start_s:
            self._starting.popleft()
            self.running += 1
        useful = min(self.running, self._consumers.partitions)
        return useful * self._consumers.rate_per_task * (end_s - start_s)


class Signal(StrEnum):
    """The signals of the metrics that alarms read."""

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
    """The signal of a metric, by the metric's name. ``None`` for another metric."""
    return _AWS.get((metric.namespace, metric.name)) or _KARROTS.get(metric.name)
