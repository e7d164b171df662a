"""The lines of JSON about stale partitions."""

import json

import pytest
from pyspark.sql import Row

from karrot.pipeline.stale.stale_judge import lines_of


@pytest.mark.parametrize(
    ("offset", "looked_at_ms", "lag"), [(40, 9_000, 50), (100, 9_000, None), (100, 4_000, 0), (None, 9_000, None)]
)
def test_a_cleared_alert_has_no_lag_of_zero_if_the_offset_is_past_a_later_log_end(
    offset: int | None, looked_at_ms: int, lag: int | None
) -> None:
    names = {"consumer": "g", "topic": "t", "partition": 0, "cleared_offset": 5, "cleared_since_ms": 1}
    row = Row(**names, fired=False, offset=offset, at_ms=5_000, looked_at_ms=looked_at_ms, end_offset=90)
    [line] = lines_of(row, "c")
    assert json.loads(line)["lag"] == lag
