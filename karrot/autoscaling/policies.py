"""Computes the capacity that a scaling policy asks for, before cooldowns and limits.

Rules and worked examples: Application Auto Scaling User Guide, "How step scaling for Application Auto Scaling works"
(step adjustments); the EC2 Auto Scaling guide says the same of instances.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from karrot.autoscaling.alarm_model import Alarm, AlarmState, Comparison, Evaluation
from karrot.autoscaling.metric_series import WatchedQuery

_DEFAULT_COOLDOWN_S = 300
_HIGH_PERIODS = 3
_LOW_PERIODS = 15
_LOW_SHARE = 0.9


class Adjustment(StrEnum):
    """``AdjustmentType`` of a step scaling policy."""

    CHANGE = "ChangeInCapacity"
    EXACT = "ExactCapacity"


class StepAdjustment(NamedTuple):
    """One step: bounds as distances from the alarm's threshold, ``None`` for infinity, and by how much to scale."""

    lower: float | None
    upper: float | None
    adjustment: int


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
    """A step scaling policy on the maximum of the alarm's recent values.

    API reference, StepScalingPolicyConfiguration (``MetricAggregationType``). If no step covers it, nothing happens.
    """

    name: str
    adjustment: Adjustment
    steps: tuple[StepAdjustment, ...]
    out_cooldown_s: int = _DEFAULT_COOLDOWN_S
    in_cooldown_s: int = _DEFAULT_COOLDOWN_S

    def asks(self, capacity: int, alarm: Alarm, evaluation: Evaluation) -> int | None:
        """The capacity after the step that the breach falls into."""
        if not evaluation.values:
            return None
        step = pick(self.steps, max(evaluation.values) - alarm.threshold, upwards=alarm.comparison.upwards)
        if step is None:
            return None
        return step.adjustment if self.adjustment is Adjustment.EXACT else capacity + step.adjustment


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
    out_cooldown_s: int = _DEFAULT_COOLDOWN_S
    in_cooldown_s: int = _DEFAULT_COOLDOWN_S
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

    def alarms(self) -> tuple[Alarm, ...]:
        """AlarmHigh and AlarmLow."""
        high = self._alarm("AlarmHigh", Comparison.ABOVE, self.target, _HIGH_PERIODS)
        low = self._alarm("AlarmLow", Comparison.BELOW, self.target * _LOW_SHARE, _LOW_PERIODS)
        return high, low

    def _alarm(self, kind: str, comparison: Comparison, threshold: float, periods: int) -> Alarm:
        return Alarm(
            name=f"{self.name}-{kind}",
            query=self.query,
            comparison=comparison,
            threshold=threshold,
            evaluation_periods=periods,
            datapoints_to_alarm=periods,
            actions={AlarmState.ALARM: (self.name,)},
        )


def pick(steps: Sequence[StepAdjustment], distance: float, *, upwards: bool) -> StepAdjustment | None:
    """The step for a value so far from the threshold, or ``None`` where no step covers it: then nothing is scaled.

    Above the threshold a lower bound is included and an upper one is not, below it the other way round. ``upwards``
    tells on which side the alarm breaches, which settles a distance of 0.
    """
    above = distance > 0 or (distance == 0 and upwards)
    for step in steps:
        lower = -math.inf if step.lower is None else step.lower
        upper = math.inf if step.upper is None else step.upper
        if (lower <= distance < upper) if above else (lower < distance <= upper):
            return step
    return None
