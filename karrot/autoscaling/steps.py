"""Step adjustments: how far from the threshold, so how many tasks.

Rules and worked examples: Application Auto Scaling User Guide, "How step scaling for Application Auto Scaling works"
(step adjustments, scaling adjustment types); the EC2 Auto Scaling guide says the same of instances.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Adjustment", "StepAdjustment", "adjusted", "pick", "why_no_steps"]


class Adjustment(StrEnum):
    """``AdjustmentType`` of a step scaling policy."""

    CHANGE = "ChangeInCapacity"
    EXACT = "ExactCapacity"
    PERCENT = "PercentChangeInCapacity"


class StepAdjustment(NamedTuple):
    """One step: bounds as distances from the alarm's threshold, ``None`` for infinity, and by how much to scale."""

    lower: float | None
    upper: float | None
    adjustment: int


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


def adjusted(capacity: int, adjustment: Adjustment, by: int, minimum_magnitude: int = 0) -> int:
    """The capacity asked for; may lie outside the limits of the target, which come later."""
    match adjustment:
        case Adjustment.EXACT:
            return by
        case Adjustment.CHANGE:
            return capacity + by
        case Adjustment.PERCENT:
            change = _rounded(capacity * by / 100)
            return capacity + _at_least(change, minimum_magnitude)


def why_no_steps(steps: Sequence[StepAdjustment]) -> str | None:
    """What PutScalingPolicy would refuse, as a sentence; ``None`` if nothing."""
    if not steps:
        return "there is no step"
    ordered = sorted(steps, key=lambda step: -math.inf if step.lower is None else step.lower)
    if any(step.lower is None and step.upper is None for step in steps):
        return "a step has no bound at all"
    if any(before.upper != after.lower or before.upper is None for before, after in pairwise(ordered)):
        return "the steps overlap or leave a gap"
    first, last = ordered[0], ordered[-1]
    if first.lower is not None and first.lower < 0:
        return "a negative lower bound needs a step without a lower bound"
    if last.upper is not None and last.upper > 0:
        return "a positive upper bound needs a step without an upper bound"
    return None


def _rounded(change: float) -> int:
    """Towards zero, but never to zero: 12.7 is 12, 0.67 is 1, -0.58 is -1, -6.67 is -6."""
    return math.trunc(change) or int(math.copysign(1, change)) if change else 0


def _at_least(change: int, magnitude: int) -> int:
    return int(math.copysign(max(abs(change), magnitude), change)) if change else 0
