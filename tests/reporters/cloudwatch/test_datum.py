from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.reporters.cloudwatch.batching import envelope
from karrot.reporters.cloudwatch.datum import Datum, MetricKey
from support.reporters.cloudwatch_datum import NOW_MS, datum_strategy, make_datum, request_body


def test_a_datum_is_what_boto3_takes() -> None:
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
def test_the_size_bounds_what_boto3_really_sends_by_a_few_bytes(data: list[Datum], namespace: str) -> None:
    bound = envelope(namespace) + sum(datum.size() for datum in data)
    sent = len(request_body(namespace, data))
    # The separator after the last datum, and ".0" of each time that is a whole second: 3 % of the smallest datum.
    assert sent <= bound <= sent + 2 + 2 * len(data)
