"""Scaling policies: what an alarm's action asks for, before cooldowns and limits."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Protocol

from karrot.autoscaling.alarms import Alarm, Comparison, Evaluation
from karrot.autoscaling.metric_queries import WatchedQuery
from karrot.autoscaling.missing_data import AlarmState
from karrot.autoscaling.steps import Adjustment, StepAdjustment, adjusted, pick

__all__ = ["Policy", "ScaleIn", "StepPolicy", "TrackingPolicy"]

DEFAULT_COOLDOWN_S = 300
_HIGH_PERIODS = 3
_LOW_PERIODS = 15
_LOW_SHARE = 0.9

_AGGREGATIONS: dict[str, Callable[[Sequence[float]], float]] = {"Average": fmean, "Minimum": min, "Maximum": max}


class Policy(Protocol):
    """What the stack needs to know of a policy. Cooldowns are in seconds."""

    @property
    def name(self) -> str:
        """How alarms refer to it."""

    @property
    def out_cooldown_s(self) -> int:
        """How long a scale-out counts as still taking effect."""

    @property
    def in_cooldown_s(self) -> int:
        """How long a scale-in blocks the next one."""

    def asks(self, capacity: int, alarm: Alarm, evaluation: Evaluation) -> int | None:
        """The capacity asked for, given the present one; ``None`` if the alarm's values lead to no adjustment."""


@dataclass(frozen=True, slots=True)
class StepPolicy:
    """A step scaling policy.

    The breach is that of the alarm's recent values, aggregated (API reference, StepScalingPolicyConfiguration). With
    M of N and ``Average`` that can be on the harmless side of the threshold, where no step is: then nothing happens.
    """

    name: str
    adjustment: Adjustment
    steps: tuple[StepAdjustment, ...]
    out_cooldown_s: int = DEFAULT_COOLDOWN_S
    in_cooldown_s: int = DEFAULT_COOLDOWN_S
    aggregation: str = "Average"
    minimum_magnitude: int = 0

    def asks(self, capacity: int, alarm: Alarm, evaluation: Evaluation) -> int | None:
        """The capacity after the step that the breach falls into."""
        if not evaluation.values:
            return None
        distance = _AGGREGATIONS[self.aggregation](evaluation.values) - alarm.threshold
        step = pick(self.steps, distance, upwards=alarm.comparison.upwards)
        return None if step is None else adjusted(capacity, self.adjustment, step.adjustment, self.minimum_magnitude)


class ScaleIn(StrEnum):
    """How much target tracking takes away at a time.

    The guide says that it scales out in proportion and in "more gradually", without a number. Reality lies between
    the two readings: one task (dear, safe) or all that the proportion allows (cheap, more ups and downs).
    """

    ONE = "one"
    PROPORTIONAL = "proportional"


@dataclass(frozen=True, slots=True)
class TrackingPolicy:
    """A target tracking policy, with the two alarms that Application Auto Scaling makes for it.

    Scale-out after 3 of 3 minutes above the target, scale-in after 15 of 15 below about nine tenths of it, never
    on missing data (Application Auto Scaling User Guide, "How target tracking scaling works"; the numbers are what
    the service is seen to create). Capacity follows the metric in proportion, rounded up; so it cannot leave zero.
    """

    name: str
    query: WatchedQuery
    target: float
    out_cooldown_s: int = DEFAULT_COOLDOWN_S
    in_cooldown_s: int = DEFAULT_COOLDOWN_S
    scales_in: bool = True
    scale_in: ScaleIn = ScaleIn.ONE

    def asks(self, capacity: int, alarm: Alarm, evaluation: Evaluation) -> int | None:
        """In proportion to the newest value."""
        if not evaluation.values:
            return None
        proportional = math.ceil(capacity * evaluation.values[-1] / self.target - 1e-9)
        if alarm.comparison.upwards:
            return max(capacity, proportional)
        least = capacity - 1 if self.scale_in is ScaleIn.ONE else 0
        return max(0, min(capacity, max(least, proportional)))

    def alarms(self, extra_periods: int = 2) -> tuple[Alarm, ...]:
        """AlarmHigh and, unless scale-in is disabled, AlarmLow."""
        high = self._alarm("AlarmHigh", Comparison.ABOVE, self.target, _HIGH_PERIODS, extra_periods)
        low = self._alarm("AlarmLow", Comparison.BELOW, self.target * _LOW_SHARE, _LOW_PERIODS, extra_periods)
        return (high, low) if self.scales_in else (high,)

    def _alarm(self, kind: str, comparison: Comparison, threshold: float, periods: int, extra_periods: int) -> Alarm:
        return Alarm(
            name=f"{self.name}-{kind}",
            query=self.query,
            comparison=comparison,
            threshold=threshold,
            evaluation_periods=periods,
            datapoints_to_alarm=periods,
            actions={AlarmState.ALARM: (self.name,)},
            extra_periods=extra_periods,
        )
