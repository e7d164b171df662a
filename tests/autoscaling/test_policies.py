"""Step adjustments give the results of AWS's worked example.

Source: Application Auto Scaling User Guide, "How step scaling for Application Auto Scaling works": threshold 50,
PercentChangeInCapacity, capacity 10.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.autoscaling.policies import Adjustment, StepAdjustment, adjusted, pick

OUT = (StepAdjustment(0, 10, 0), StepAdjustment(10, 20, 10), StepAdjustment(20, None, 30))
IN = (StepAdjustment(-10, 0, 0), StepAdjustment(-20, -10, -10), StepAdjustment(None, -20, -30))
THRESHOLD = 50


def after(capacity: int, metric: float) -> int:
    upwards = metric >= THRESHOLD
    step = pick(OUT if upwards else IN, metric - THRESHOLD, upwards=upwards)
    assert step is not None
    return adjusted(capacity, Adjustment.PERCENT, step.adjustment)


def test_the_worked_example_from_ten_tasks_and_back() -> None:
    assert after(10, 60) == 11
    assert after(11, 70) == 14  # 30 % of 11 is 3.3
    assert after(14, 40) == 13  # 10 % of 14 is 1.4
    assert after(13, 30) == 10  # 30 % of 13 is 3.9


@pytest.mark.parametrize("metric", [40.001, 50, 59.999])
def test_a_value_near_the_threshold_changes_nothing(metric: float) -> None:
    assert after(10, metric) == 10


@pytest.mark.parametrize(
    ("distance", "upwards", "adjustment"),
    [
        (0, True, 0),
        (10, True, 10),
        (20, True, 30),
        (0, False, 0),
        (-10, False, -10),
        (-20, False, -30),
        (-9.9, False, 0),
    ],
)
def test_bounds_include_the_side_nearer_to_the_threshold(distance: float, upwards: bool, adjustment: int) -> None:  # noqa: FBT001
    step = pick(OUT if upwards else IN, distance, upwards=upwards)
    assert step is not None
    assert step.adjustment == adjustment


def test_a_value_that_no_step_covers_scales_nothing() -> None:
    assert pick(OUT, -0.1, upwards=True) is None
    assert pick(IN, 0.1, upwards=False) is None


@pytest.mark.parametrize(
    ("capacity", "percent", "change"),
    [(127, 10, 12), (67, 1, 1), (58, -1, -1), (667, -1, -6), (10, 0, 0), (10, 10, 1), (0, 50, 0)],
)
def test_percentages_round_towards_zero_but_never_to_zero(capacity: int, percent: int, change: int) -> None:
    assert adjusted(capacity, Adjustment.PERCENT, percent) == capacity + change


def test_the_minimum_magnitude_lifts_a_small_percentage() -> None:
    assert adjusted(4, Adjustment.PERCENT, 25) == 5
    assert adjusted(4, Adjustment.PERCENT, 25, minimum_magnitude=2) == 6
    assert adjusted(4, Adjustment.PERCENT, -25, minimum_magnitude=2) == 2
    assert adjusted(4, Adjustment.PERCENT, 0, minimum_magnitude=2) == 4


def test_change_adds_and_exact_sets() -> None:
    assert adjusted(3, Adjustment.CHANGE, 5) == 8
    assert adjusted(3, Adjustment.EXACT, 5) == 5


@given(
    bounds=st.lists(st.integers(1, 1000), unique=True, max_size=6).map(sorted),
    distance=st.floats(0, 1e6),
)
def test_steps_without_a_gap_cover_every_breach(bounds: list[int], distance: float) -> None:
    edges = [0, *bounds, None]
    steps = tuple(StepAdjustment(low, high, 1) for low, high in pairwise(edges) if low is not None)
    assert pick(steps, distance, upwards=True) is not None
    mirrored = tuple(
        StepAdjustment(None if step.upper is None else -step.upper, -(step.lower or 0), -1) for step in reversed(steps)
    )
    assert pick(mirrored, -distance, upwards=False) is not None
