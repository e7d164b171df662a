import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.reporters.cloudwatch.data import (
    MAX_BYTES,
    MAX_DATA,
    MAX_DIMENSION_VALUE,
    MAX_METRIC_NAME,
    REASONS,
    Datum,
    MetricKey,
    batches,
    envelope,
    why_refused,
)
from support.reporters.cloudwatch_datum import NOW_MS, datum_strategy, make_datum, request_body, service_model

DAY_MS, HOUR_MS = 86_400_000, 3_600_000


def _dimensions(count: int) -> tuple[tuple[str, str], ...]:
    return tuple((f"Name{number}", "value") for number in range(count))


def test_a_datum_has_the_form_of_boto3() -> None:
    assert make_datum(resolution=1).wire() == {
        "MetricName": "Lag",
        "Dimensions": [{"Name": "Cluster", "Value": "prod-eu"}, {"Name": "ConsumerGroup", "Value": "orders-svc"}],
        "Value": 11_020.0,
        "Unit": "Count",
        "Timestamp": datetime(2025, 5, 11, 8, 0, 5, 123_000, tzinfo=UTC),
        "StorageResolution": 1,
    }


def test_a_datum_of_the_first_karrot_has_neither_dimensions_nor_unit_nor_resolution() -> None:
    legacy = make_datum(metric="orders-svc", dimensions=(), unit=None)
    assert legacy.wire() == {
        "MetricName": "orders-svc",
        "Value": 11_020.0,
        "Timestamp": datetime(2025, 5, 11, 8, 0, 5, 123_000, tzinfo=UTC),
    }


@given(st.integers(0, 4_102_444_800_000))
def test_a_timestamp_is_aware_and_exact_to_the_millisecond(timestamp_ms: int) -> None:
    told = make_datum(timestamp_ms=timestamp_ms).wire()["Timestamp"]
    assert isinstance(told, datetime)
    assert told.tzinfo is UTC
    assert told - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(milliseconds=timestamp_ms)


def test_the_key_is_the_metric_with_its_dimensions() -> None:
    newer = make_datum(value=1.0, unit="None", timestamp_ms=NOW_MS + 1, resolution=1)
    assert newer.key == make_datum().key == MetricKey("Lag", make_datum().dimensions)
    assert make_datum(dimensions=()).key != newer.key


@settings(deadline=None)
@given(st.lists(datum_strategy(), max_size=4), st.sampled_from(["Karrot", "a/b:c#" * 40]))
def test_the_size_is_an_upper_bound_within_a_few_bytes_of_boto3s_request(data: list[Datum], namespace: str) -> None:
    bound = envelope(namespace) + sum(datum.size() for datum in data)
    sent = len(request_body(namespace, data))
    # The difference is the separator after the last datum and ".0" of each whole second: 3 % of the smallest datum.
    assert sent <= bound <= sent + 2 + 2 * len(data)


# --- data that CloudWatch refuses ---


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        pytest.param({"value": math.nan}, "value", id="not a number"),
        pytest.param({"value": math.inf}, "value", id="infinity"),
        pytest.param({"value": -math.inf}, "value", id="minus infinity"),
        pytest.param({"value": math.nextafter(2.0**360, math.inf)}, "value", id="a value just above the greatest"),
        pytest.param({"timestamp_ms": NOW_MS - 14 * DAY_MS}, "too_old", id="two weeks old"),
        pytest.param({"timestamp_ms": 0}, "too_old", id="epoch 0"),
        pytest.param({"timestamp_ms": NOW_MS + 2 * HOUR_MS}, "too_new", id="two hours ahead"),
        pytest.param({"timestamp_ms": 8_000_000_000_000_000_000}, "too_new", id="millions of years ahead"),
    ],
)
def test_a_datum_that_cloudwatch_would_refuse_has_a_stable_reason(overrides: dict[str, Any], reason: str) -> None:
    assert why_refused(make_datum(**overrides), NOW_MS) == reason


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({}, id="the defaults"),
        pytest.param({"value": 0.0}, id="zero"),
        pytest.param({"value": -(2.0**360)}, id="the lowest value"),
        pytest.param({"value": 2.0**360}, id="the greatest value"),
        pytest.param({"timestamp_ms": NOW_MS - 13 * DAY_MS}, id="13 days old"),
        pytest.param({"timestamp_ms": NOW_MS + HOUR_MS}, id="an hour ahead"),
    ],
)
def test_a_datum_that_cloudwatch_accepts_is_not_refused(overrides: dict[str, Any]) -> None:
    assert why_refused(make_datum(**overrides), NOW_MS) is None


def test_the_reasons_are_stable() -> None:
    assert list(REASONS) == ["value", "too_old", "too_new"]


def test_the_limits_match_the_service_model() -> None:
    shapes = service_model()
    assert shapes["DimensionValue"]["max"] == MAX_DIMENSION_VALUE
    assert shapes["MetricName"]["max"] == MAX_METRIC_NAME


# --- requests ---


@pytest.mark.parametrize(("data", "calls"), [(0, 0), (1, 1), (1000, 1), (1001, 2), (2000, 2), (20_000, 20)])
def test_small_data_need_a_call_per_thousand(data: int, calls: int) -> None:
    assert len(list(batches([make_datum()] * data, "Karrot"))) == calls


def test_large_data_are_split_by_their_bytes() -> None:
    large = make_datum(dimensions=tuple((f"Name{number}", "x" * 1024) for number in range(30)))
    made = list(batches([large] * 100, "Karrot"))
    assert [len(batch) for batch in made] == [28, 28, 28, 16]
    assert all(len(request_body("Karrot", batch)) <= MAX_BYTES for batch in made)


def test_a_datum_that_fills_a_request_is_sent_alone() -> None:
    huge = make_datum(dimensions=(("Name", "x" * 2 * MAX_BYTES),))
    assert list(batches([make_datum(), huge, make_datum()], "Karrot")) == [[make_datum()], [huge], [make_datum()]]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(datum_strategy(), st.integers(1, 800)), max_size=3), st.sampled_from(["Karrot", "n" * 255]))
def test_no_batch_exceeds_a_limit_and_no_batch_is_unnecessary(
    repeated: list[tuple[Datum, int]], namespace: str
) -> None:
    data = [datum for datum, times in repeated for _ in range(times)]
    made = list(batches(data, namespace))
    assert [datum for batch in made for datum in batch] == data
    assert all(0 < len(batch) <= MAX_DATA for batch in made)
    assert all(len(request_body(namespace, batch)) <= MAX_BYTES for batch in made)
    for batch, following in pairwise(made):
        full = envelope(namespace) + sum(datum.size() for datum in [*batch, following[0]])
        assert len(batch) == MAX_DATA or full > MAX_BYTES
