"""Step adjustments with the steps of AWS's worked example.

Source: Application Auto Scaling User Guide, "How step scaling for Application Auto Scaling works".
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.autoscaling.policies import StepAdjustment, pick

OUT = (StepAdjustment(0, 10, 0), StepAdjustment(10, 20, 10), StepAdjustment(20, None, 30))
IN = (StepAdjustment(-10, 0, 0), StepAdjustment(-20, -10, -10), StepAdjustment(None, -20, -30))


@pytest.mark.parametrize(
    ("distance", "upwards", "adjustment"),
    [
        pytest.param(0, True, 0, id="0 above"),
        pytest.param(10, True, 10, id="10 above"),
        pytest.param(20, True, 30, id="20 above"),
        pytest.param(0, False, 0, id="0 below"),
        pytest.param(-10, False, -10, id="10 below"),
        pytest.param(-20, False, -30, id="20 below"),
        pytest.param(-9.9, False, 0, id="9.9 below"),
    ],
)
def test_bounds_include_the_side_nearer_to_the_threshold(distance: float, upwards: bool, adjustment: int) -> None:  # noqa: FBT001
    step = pick(OUT if upwards else IN, distance, upwards=upwards)
    assert step is not None
    assert step.adjustment == adjustment


def test_a_value_that_no_step_covers_scales_nothing() -> None:
    assert pick(OUT, -0.1, upwards=True) is None
    assert pick(IN, 0.1, upwards=False) is None


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
