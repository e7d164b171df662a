"""Computes the capacity that a scaling policy requests, before cooldowns and limits.

Rules and worked examples: Application Auto Scaling User Guide, "How step scaling for Application Auto Scaling works"
(step adjustments). The EC2 Auto Scaling guide has the same rules for instances.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from support.autoscaling.alarm_model import Alarm, AlarmState, Comparison, Evaluation
from support.autoscaling.metric_math_evaluator import WatchedQuery

_DEFAULT_COOLDOWN_S = 300
_HIGH_PERIODS = 3
_LOW_PERIODS = 15
LOW_SHARE_OF_TASKS = 0.9
LOW_SHARE_OF_INSTANCES = 0.7


class Adjustment(StrEnum):
    """``AdjustmentType`` of a step scaling policy."""

    CHANGE = "ChangeInCapacity"
    EXACT = "ExactCapacity"


class StepAdjustment(NamedTuple):
    """One step: its bounds as distances from the alarm's threshold (``None`` is infinity), and the adjustment."""

    lower: float | None
    upper: float | None
    adjustment: int


@dataclass(frozen=True, slots=True)
class StepPolicy:
    """A step scaling policy on the maximum of the alarm's recent values.

    See the API reference, StepScalingPolicyConfiguration (``MetricAggregationType``). If no step covers the breach,
    the policy changes nothing.
    """

    name: str
    adjustment: Adjustment
    steps: tuple[StepAdjustment, ...]
    out_cooldown_s: int = _DEFAULT_COOLDOWN_S
    in_cooldown_s: int = _DEFAULT_COOLDOWN_S

    def asks(self, capacity: int, alarm: Alarm, evaluation: Evaluation) -> int | None:
        """The capacity after the step that covers the breach."""
        if not evaluation.values:
            return None
        step = pick(self.steps, max(evaluation.values) - alarm.threshold, upwards=alarm.comparison.upwards)
        if step is None:
            return None
        return step.adjustment if self.adjustment is Adjustment.EXACT else capacity + step.adjustment


class ScaleIn(StrEnum):
    """The number of tasks that target tracking removes at a time.

    The guide of Application Auto Scaling says that target tracking scales out in proportion and scales in "more
    gradually", without a number. The real behaviour is between two extremes. To remove one task is safe and expensive.
    To remove all tasks that the proportion allows is cheap, but the capacity then changes more often. The EC2 guide
    describes the proportion for instances: 1.5 instances too many, one instance removed.
    """

    ONE = "one"
    PROPORTIONAL = "proportional"


@dataclass(frozen=True, slots=True)
class TrackingPolicy:
    """A target tracking policy, with the two alarms that Application Auto Scaling makes for it.

    It scales out after 3 of 3 minutes above the target, and in after 15 of 15 minutes below ``low_share`` of the
    target, but never on missing data (Application Auto Scaling User Guide, "How target tracking scaling works"; the
    numbers were observed in the alarms that the service creates: 30 and 27 for ECS, 50 and 35 for instances). Capacity
    follows the metric in proportion, rounded up, so it cannot grow from zero.
    """

    name: str
    query: WatchedQuery
    target: float
    out_cooldown_s: int = _DEFAULT_COOLDOWN_S
    in_cooldown_s: int = _DEFAULT_COOLDOWN_S
    scale_in: ScaleIn = ScaleIn.ONE
    low_share: float = LOW_SHARE_OF_TASKS

    def asks(self, capacity: int, alarm: Alarm, evaluation: Evaluation) -> int | None:
        """The capacity in proportion to the newest value."""
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
        low = self._alarm("AlarmLow", Comparison.BELOW, self.target * self.low_share, _LOW_PERIODS)
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


Policy = StepPolicy | TrackingPolicy
"""A policy of the stack. Alarms refer to a policy by name. ``asks`` returns the capacity that the policy requests.

``out_cooldown_s`` is how long a scale-out takes effect. ``in_cooldown_s`` is how long a scale-in blocks the next one.
"""


def pick(steps: Sequence[StepAdjustment], distance: float, *, upwards: bool) -> StepAdjustment | None:
    """The step for a distance from the threshold. Without such a step (``None``), the policy changes nothing.

    Above the threshold, a step includes its lower bound but not its upper bound. Below the threshold, a step includes
    its upper bound but not its lower bound. A distance of 0 is above if the alarm breaches ``upwards``.
    """
    above = distance > 0 or (distance == 0 and upwards)
    for step in steps:
        lower = -math.inf if step.lower is None else step.lower
        upper = math.inf if step.upper is None else step.upper
        if (lower <= distance < upper) if above else (lower < distance <= upper):
            return step
    return None
