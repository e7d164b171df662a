"""Simulates consumers and their backlog: tasks take time to start, and messages are read in the order they came."""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Consumers:
    """What one task can do. Work is spread evenly over partitions; a task beyond their number does nothing.

    ``start_s`` passes from the decision to the first message a new task reads; every change of the number of running
    tasks stops all of them for ``rebalance_s``.
    """

    rate_per_task: float
    start_s: float = 60
    rebalance_s: float = 0
    partitions: int | None = None


class Fleet:
    """The tasks of a service: those wanted, and those of them that run."""

    def __init__(self, consumers: Consumers, tasks: int) -> None:
        self._consumers = consumers
        self._starting: deque[float] = deque()
        self._paused_until_s = float("-inf")
        self.running = tasks

    @property
    def desired(self) -> int:
        """Tasks running or starting: what is paid for."""
        return self.running + len(self._starting)

    def scale(self, desired: int, now_s: float) -> None:
        """Start tasks, or stop some: those still starting first."""
        for _ in range(desired - self.desired):
            self._starting.append(now_s + self._consumers.start_s)
        while self._starting and self.desired > desired:
            self._starting.pop()
        if self.running > desired:
            self._change(desired, now_s)

    def consumable(self, start_s: float, end_s: float) -> float:
        """Messages it can take in that time; tasks that have started by the begin of it take part."""
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
    """Messages not read yet, oldest first, with the times between which they arrived."""

    def __init__(self) -> None:
        self._cohorts: deque[tuple[float, float, float]] = deque()
        self.lag = 0.0

    def add(self, start_s: float, end_s: float, messages: float) -> None:
        """Messages that arrived evenly from ``start_s`` to ``end_s``."""
        if messages > 0:
            self._cohorts.append((start_s, end_s, messages))
            self.lag += messages

    def take(self, messages: float) -> None:
        """Read so many, or all."""
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
        """Seconds since the oldest unread message arrived; 0 if there is none. This is Karrot's LagSeconds."""
        return max(0.0, now_s - self._cohorts[0][0]) if self._cohorts else 0.0
