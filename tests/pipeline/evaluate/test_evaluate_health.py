"""A probe sees that no batch ends any more."""

from datetime import timedelta

import pytest

from karrot.pipeline.evaluate.burrow_judge import JudgedBatch
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


def test_verdicts_that_wait_are_counted_and_the_time_of_the_newest_verdicts_stands_still() -> None:
    metrics = EvaluateMetrics("c", ManualClock(wall=1000), timedelta(minutes=1))

    def values() -> list[float]:
        found = {(each.name, *each.labels.values()): each.value for one in metrics.collect() for each in one.samples}
        names = ("waiting_verdicts", "batches_total", "last_batch_timestamp_seconds")
        return [found[f"karrot_evaluate_{name}", "c"] for name in names] + [
            found["karrot_evaluate_verdicts_total", "c", "superseded"]
        ]

    seen = JudgedBatch(now_ms=60_000, groups=3, partitions=9, delivered=3, seconds=1.0)
    metrics.judged(seen)
    assert values() == [0, 1, 60, 0]
    metrics.judged(seen._replace(now_ms=120_000, waiting=4, superseded=2, problem="away"))
    assert values() == [4, 1, 60, 2]
    metrics.judged(seen._replace(now_ms=180_000))
    assert values() == [0, 2, 180, 2]
