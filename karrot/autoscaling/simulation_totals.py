"""Computes the totals of a simulation while it runs, in memory that does not grow with its length."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from karrot.autoscaling.scalable_target import Activity

FLAP_S = 1800
_MAX_MOMENTS = 1440
_LEAST_STRETCH = 6
_HOUR = 3600


class Moment(NamedTuple):
    """The state at one moment. The lags are the largest lags since the previous moment."""

    at_s: float
    lag: float
    lag_seconds: float
    desired: int
    running: int


class RunSummary(NamedTuple):
    """The totals of a simulation. A flap is a scale-out within half an hour after a scale-in."""

    peak_lag: float
    peak_lag_seconds: float
    last_lag: float
    least_tasks: int
    most_tasks: int
    at_maximum_s: float
    task_hours: float
    scale_outs: int
    scale_ins: int
    flaps: int


class Account:
    """Collects ``count`` steps of a simulation, oldest first. Each moment sums up six or more steps, with all peaks."""

    def __init__(self, maximum: int, count: int) -> None:
        self._maximum = maximum
        self._apart = max(_LEAST_STRETCH, math.ceil(count / _MAX_MOMENTS))
        self._moments: list[Moment] = []
        self._stretch: Moment | None = None
        self._taken = 0
        self._last: Moment | None = None
        self._peak_lag = self._peak_seconds = self._task_s = self._at_maximum_s = 0.0
        self._least = self._most = 0

    def take(self, steps: Iterable[Moment]) -> None:
        """Collect all steps."""
        for step in steps:
            self._sum_up(step)
            self._sample(step)
            self._last = step

    def moments(self) -> tuple[Moment, ...]:
        """The moments made from the steps."""
        return tuple(self._moments) if self._stretch is None else (*self._moments, self._stretch)

    def summary(self, activities: Iterable[Activity]) -> RunSummary:
        """The totals. Raises `ValueError` if no step was collected."""
        if self._last is None:
            raise ValueError("a run has at least one step")
        changes = list(activities)
        outs = sum(each.after > each.before for each in changes)
        return RunSummary(
            peak_lag=self._peak_lag,
            peak_lag_seconds=self._peak_seconds,
            last_lag=self._last.lag,
            least_tasks=self._least,
            most_tasks=self._most,
            at_maximum_s=self._at_maximum_s,
            task_hours=self._task_s / _HOUR,
            scale_outs=outs,
            scale_ins=len(changes) - outs,
            flaps=sum(
                sooner.after < sooner.before and later.after > later.before and later.at_s - sooner.at_s <= FLAP_S
                for sooner, later in pairwise(changes)
            ),
        )

    def _sum_up(self, step: Moment) -> None:
        if self._last is None:
            self._least = self._most = step.desired
        else:
            seconds = step.at_s - self._last.at_s
            self._task_s += self._last.desired * seconds
            self._at_maximum_s += seconds if self._last.desired >= self._maximum else 0
        self._peak_lag = max(self._peak_lag, step.lag)
        self._peak_seconds = max(self._peak_seconds, step.lag_seconds)
        self._least, self._most = min(self._least, step.desired), max(self._most, step.desired)

    def _sample(self, step: Moment) -> None:
        if self._last is None:
            self._moments.append(step)
            return
        before, self._taken = self._stretch or step, self._taken + 1
        stretch = step._replace(lag=max(before.lag, step.lag), lag_seconds=max(before.lag_seconds, step.lag_seconds))
        is_whole = self._taken % self._apart == 0
        self._stretch = None if is_whole else stretch
        if is_whole:
            self._moments.append(stretch)
