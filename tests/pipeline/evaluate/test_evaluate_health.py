"""A probe sees that no batch ends any more."""

from datetime import timedelta

import pytest

from karrot.pipeline.evaluate.metrics_and_health import EvaluateMetrics
from support.manual_clock import ManualClock


@pytest.mark.parametrize(
    ("every", "limit_s", "limit"),
    [(timedelta(minutes=1), 1800, "30 min"), (timedelta(minutes=10), 6000, "1 h 40 min")],
)
def test_a_command_is_healthy_until_no_batch_ends_for_the_limit(every: timedelta, limit_s: int, limit: str) -> None:
    clock = ManualClock()
    metrics = EvaluateMetrics("c", clock, every)
    for _ in range(2):
        clock.advance(1000 * limit_s)
        assert metrics.problem() is None
        clock.advance(1)
        assert metrics.problem() == f"no batch has ended for more than {limit}"
        metrics.landed(0)
        assert metrics.problem() is None
