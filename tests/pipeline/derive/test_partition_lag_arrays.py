"""The arrays of `karrot.pipeline.derive.partition_lag_minute` at sizes and numbers that Spark's tests do not have."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from karrot.pipeline.derive.lag_seconds import BEHIND_MS
from karrot.pipeline.derive.partition_lag_minute import _is_overtaken, _lags

_DAY_MS, _MINUTE_MS = 1_795_824_000_000, 60_000
_ROWS = pa.schema(
    [
        *(("log", pa.int64()), ("kind", pa.int32()), ("cluster", pa.string()), ("consumer", pa.string())),
        *(("topic", pa.string()), ("partition", pa.int32()), ("at_ms", pa.int64()), ("offset", pa.int64())),
        *(("place", pa.int64()), ("owner", pa.string()), ("day", pa.int32())),
    ]
)


def a_row(kind: int, **others: Any) -> dict[str, Any]:
    return {"log": 1, "kind": kind, "cluster": "c", "topic": "t", "partition": 0, **others}


def batches_of(rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    made = pa.Table.from_pylist(rows, _ROWS).to_batches(max_chunksize=100)
    return _lags(made, since_ms=_DAY_MS, longest_ms=600_000, topics_read={})


def test_a_log_that_a_thousand_idle_groups_read_is_computed_in_parts() -> None:
    polls = [
        a_row(2, at_ms=_DAY_MS + minute * _MINUTE_MS, offset=minute, place=0, day=_DAY_MS // 86_400_000)
        for minute in range(5)
    ]
    commits = [a_row(0, consumer=f"g{number}", at_ms=_DAY_MS - 1, offset=0) for number in range(1_000)]
    made = list(batches_of(polls + commits))
    assert max(map(len, made)) < 2_500
    table = pa.Table.from_batches(made)
    assert sorted(zip(table["consumer"].to_pylist(), table["lag"].to_pylist(), strict=True)) == sorted(
        (f"g{number}", minute) for number in range(1_000) for minute in range(5)
    )


def test_a_log_end_below_one_of_the_minute_before_it_is_overtaken() -> None:
    random = np.random.default_rng(3)
    for size in (0, 1, 2, 500):
        log = np.sort(random.integers(0, 3, size))
        at_ms = np.concatenate([np.sort(random.integers(0, 1_000_000, (log == each).sum())) for each in range(3)])
        end = random.integers(-5, 200, size) + at_ms // 5_000
        expected = [
            bool(((log == log[at]) & (at_ms >= at_ms[at] - BEHIND_MS) & (end > end[at]))[:at].any())
            for at in range(size)
        ]
        assert _is_overtaken(log, at_ms, end).tolist() == expected


@pytest.mark.timeout(30)
def test_the_verdicts_of_many_groups_in_a_minute_take_no_step_each() -> None:
    count = 400_000
    found = _is_overtaken(np.zeros(count, np.int64), np.arange(count) // 10, np.arange(count))
    assert not found.any()
