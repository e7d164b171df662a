"""An extrapolated lag in seconds is replaced by one from the log end samples of other verdicts."""

import datetime as dt
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from karrot.pipeline.derive.lag_seconds import age_from_samples, by_hindsight, sample_spans
from karrot.pipeline.schemas_and_conversions import ENDS, with_day
from support.eventlog.age_cases import AGE_CASES
from support.pipeline.event_rows import event_row, events_frame, frame_of_rows, partitions_frame
from support.pipeline.row_times import MIDNIGHT

NOW_MS = 1_700_000_000_000
TEN_MINUTES = dt.timedelta(minutes=10)
DAY = 24 * 60

Told = dict[int, list[float | None]]
"""The lags in seconds by partition, the oldest first."""


class Verdict(NamedTuple):
    """The verdict of a minute on one partition, whose log ended at ``first_end`` when the window began.

    ``known`` says how the service knows ``told``, and on which partition; ``None`` for an event of an older Karrot.
    """

    minute: float
    committed: int
    end: int
    first_end: int
    told: float | None
    known: tuple[str, int] | None = None


# A batch arrives within ten minutes, 1,000 messages per minute, and is read at a tenth of that rate.
BATCH = [Verdict(minute, 100 * minute, 1_000 * minute, 1_000 * minute, 1.0) for minute in range(11)]
IDLE = [Verdict(minute, 9_900, 10_000, 10_000, 1.0) for minute in range(11, 40, 5)]

SLOW, NO_RATE, WITHIN, NO_LOOK, FAR_APART, RECREATED, NEXT_DAY, BOUND, KNOWN, ELSEWHERE = range(10)
HEARD = {
    SLOW: [*BATCH, *IDLE, Verdict(40, 4_000, 10_001, 10_000, 360_000.0)],
    NO_RATE: [*BATCH, *IDLE, Verdict(40, 2_500, 10_000, 10_000, None)],
    WITHIN: [*BATCH, Verdict(11, 10_500, 11_000, 10_000, 31.5)],
    NO_LOOK: [Verdict(minute, 100, 9_000 + minute, 9_000, 7_200.0) for minute in range(3)],
    FAR_APART: [BATCH[0], Verdict(45, 2_500, 10_000, 9_999, 5_000.0)],
    RECREATED: [*BATCH, Verdict(12, 50, 900, 800, 600.0)],
    NEXT_DAY: [*BATCH, Verdict(DAY + 30, 4_000, 10_001, 10_000, 9_000.0)],
    BOUND: [*BATCH, *IDLE, Verdict(40, 4_000, 10_001, 10_000, 60.0, ("at_least", BOUND))],
    KNOWN: [*BATCH, *IDLE, Verdict(40, 4_000, 10_001, 10_000, 2_161.0, ("exact", KNOWN))],
    ELSEWHERE: [*BATCH, *IDLE, Verdict(40, 4_000, 10_001, 10_000, 9_999.0, ("extrapolated", 77))],
}


@pytest.fixture(scope="module")
def seconds(spark: SparkSession) -> Told:
    rows = [_row(partition, verdict) for partition, verdicts in HEARD.items() for verdict in verdicts]
    events, partitions = events_frame(spark, rows), partitions_frame(spark, rows)
    polled = frame_of_rows(spark, with_day(ENDS), [])
    found = by_hindsight(events, events, partitions, polled, longest=TEN_MINUTES).orderBy("received_at").collect()
    assert len(found) == len(rows)
    return {each: [row.lag_seconds for row in found if row.max_lag_partition == each] for each in HEARD}


def _row(partition: int, verdict: Verdict) -> dict[str, Any]:
    worst: dict[str, Any] = {
        "max_lag_topic": "t",
        "max_lag_partition": partition,
        "max_lag_committed": verdict.committed,
        "max_lag_first_end": verdict.first_end,
        "max_lag": verdict.end - verdict.committed,
        "lag_seconds": verdict.told,
        "lag_seconds_kind": verdict.known[0] if verdict.known else None,
        "lag_seconds_topic": "t" if verdict.known else None,
        "lag_seconds_partition": verdict.known[1] if verdict.known else None,
    }
    return event_row(60 * verdict.minute, "ok", source="kafka", **worst)


def test_the_pipeline_has_the_rule_of_the_service(spark: SparkSession) -> None:
    numbered = list(enumerate(AGE_CASES.values()))
    logs = {"cluster": "c", "topic": "t", "day": MIDNIGHT.date()}
    samples = [
        {**logs, "partition": number, "at_ms": NOW_MS - int(1_000 * ago), "end_offset": offset}
        for number, case in numbered
        for ago, offset in case.log_ends
    ]
    rows = [
        {
            **logs,
            "partition": number,
            "at_ms": NOW_MS,
            "until_ms": NOW_MS,
            "committed_offset": case.committed,
            "refresh_ms": case.refresh_ms,
        }
        for number, case in numbered
    ]
    spans = sample_spans(spark.createDataFrame(samples), dt.timedelta(days=1))
    aged = age_from_samples(spark.createDataFrame(rows), spans).orderBy("partition").collect()
    assert {name: tuple(row.age) for name, row in zip(AGE_CASES, aged, strict=True)} == {
        name: (case.age.seconds, case.age.kind.name.lower()) for name, case in AGE_CASES.items()
    }


@pytest.mark.parametrize(
    ("case", "age"),
    [
        pytest.param(BOUND, pytest.approx(60 * (40 - 4), abs=1), id="a lower bound is replaced by the measured age"),
        pytest.param(KNOWN, 2_161, id="an exact age of the service stays"),
        pytest.param(ELSEWHERE, 9_999, id="the age of another partition stays"),
        pytest.param(
            SLOW, pytest.approx(60 * (40 - 4), abs=1), id="the backlog of a batch is not older than the batch"
        ),
        pytest.param(NO_RATE, pytest.approx(60 * (40 - 2.5), abs=1), id="a lag without a known rate becomes known"),
        pytest.param(WITHIN, 31.5, id="an interpolated age stays"),
        pytest.param(NO_LOOK, 7_200, id="a lag from before the first sample stays extrapolated"),
        pytest.param(FAR_APART, 5_000, id="distant samples do not give the log end between them"),
        pytest.param(RECREATED, 600, id="a recreated topic is not measured by its old log"),
        pytest.param(NEXT_DAY, 9_000, id="samples of the day before are not used, so no day depends on another"),
    ],
)
def test_the_newest_age_of_a_partition(seconds: Told, case: int, age: float) -> None:
    assert seconds[case][-1] == age
