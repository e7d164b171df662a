import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.reporters.cloudwatch import datum_limits
from karrot.reporters.cloudwatch.datum import Datum
from karrot.reporters.cloudwatch.datum_limits import Reason, check_namespace, why_refused
from karrot.reporters.cloudwatch.naming import MAX_DIMENSION_VALUE, MAX_METRIC_NAME
from support.reporters.cloudwatch_datum import NOW_MS, datum_strategy, make_datum, service_model

DAY_MS, HOUR_MS = 86_400_000, 3_600_000


def _dimensions(count: int) -> tuple[tuple[str, str], ...]:
    return tuple((f"Name{number}", "value") for number in range(count))


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"metric": ""}, "metric_name"),
        ({"metric": " "}, "metric_name"),
        ({"metric": "x" * 256}, "metric_name"),
        ({"metric": "grüppe"}, "metric_name"),
        ({"metric": "a\n"}, "metric_name"),
        ({"dimensions": _dimensions(31)}, "dimension"),
        ({"dimensions": (("", "x"),)}, "dimension"),
        ({"dimensions": ((" ", "x"),)}, "dimension"),
        ({"dimensions": ((":a", "x"),)}, "dimension"),
        ({"dimensions": (("x" * 256, "x"),)}, "dimension"),
        ({"dimensions": (("x", ""),)}, "dimension"),
        ({"dimensions": (("x", "  "),)}, "dimension"),
        ({"dimensions": (("x", "é"),)}, "dimension"),
        ({"dimensions": (("x", "a\x7f"),)}, "dimension"),
        ({"dimensions": (("x", "x" * 1025),)}, "dimension"),
        ({"dimensions": (("x", "1"), ("x", "2"))}, "dimension"),
        ({"value": math.nan}, "value"),
        ({"value": math.inf}, "value"),
        ({"value": -math.inf}, "value"),
        ({"value": math.nextafter(2.0**360, math.inf)}, "value"),
        ({"value": True}, "value"),
        ({"unit": "Messages"}, "unit"),
        ({"unit": ""}, "unit"),
        ({"resolution": 10}, "resolution"),
        ({"resolution": 0}, "resolution"),
        ({"timestamp_ms": NOW_MS - 14 * DAY_MS}, "too_old"),
        ({"timestamp_ms": 0}, "too_old"),
        ({"timestamp_ms": NOW_MS + 2 * HOUR_MS}, "too_new"),
        ({"timestamp_ms": 8_000_000_000_000_000_000}, "too_new"),
    ],
)
def test_what_cloudwatch_refuses_is_refused_for_a_stable_reason(overrides: dict[str, Any], reason: str) -> None:
    assert why_refused(make_datum(**overrides), NOW_MS) == reason


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"metric": "x" * 255, "dimensions": (), "unit": None},
        {"metric": ":" + "%" * 3},
        {"dimensions": _dimensions(30)},
        {"dimensions": (("x" * 255, "y" * 1024), ("a b", ": c "))},
        {"value": 0.0},
        {"value": -(2.0**360)},
        {"value": 2.0**360},
        {"unit": "None", "resolution": 1},
        {"timestamp_ms": NOW_MS - 13 * DAY_MS},
        {"timestamp_ms": NOW_MS + HOUR_MS},
    ],
)
def test_what_cloudwatch_takes_is_not_refused(overrides: dict[str, Any]) -> None:
    assert why_refused(make_datum(**overrides), NOW_MS) is None


@given(datum_strategy())
def test_no_valid_datum_is_refused(datum: Datum) -> None:
    assert why_refused(datum, NOW_MS) is None


@given(
    st.builds(
        Datum,
        metric=st.text(max_size=300),
        dimensions=st.lists(st.tuples(st.text(), st.text()), max_size=32).map(tuple),
        value=st.floats() | st.integers() | st.booleans(),
        unit=st.none() | st.text(),
        timestamp_ms=st.integers(),
        resolution=st.integers(),
    )
)
def test_any_datum_is_taken_or_has_one_reason(datum: Datum) -> None:
    assert why_refused(datum, NOW_MS) in {None, *Reason}


def test_the_reasons_are_stable() -> None:
    assert list(Reason) == ["metric_name", "dimension", "value", "unit", "resolution", "too_old", "too_new"]


def test_the_limits_are_those_of_the_service_model() -> None:
    shapes = service_model()
    assert frozenset(shapes["StandardUnit"]["enum"]) == datum_limits.UNITS
    assert shapes["Dimensions"]["max"] == datum_limits.MAX_DIMENSIONS
    assert (shapes["DimensionName"]["min"], shapes["DimensionName"]["max"]) == (1, datum_limits.MAX_DIMENSION_NAME)
    assert (shapes["DimensionValue"]["min"], shapes["DimensionValue"]["max"]) == (1, MAX_DIMENSION_VALUE)
    assert (shapes["MetricName"]["min"], shapes["MetricName"]["max"]) == (1, MAX_METRIC_NAME)
    assert shapes["StorageResolution"]["min"] == min(datum_limits.RESOLUTIONS)


def test_the_service_model_asks_nothing_of_a_datum_that_the_rules_do_not_know() -> None:
    shapes = service_model()
    assert shapes["MetricDatum"]["required"] == ["MetricName"]
    of_a_datum = ("MetricDatum", "MetricName", "DatapointValue", "StandardUnit", "StorageResolution", "Timestamp")
    of_dimensions = ("Dimensions", "Dimension", "DimensionName", "DimensionValue")
    constraints = {
        (name, key)
        for name in (*of_a_datum, *of_dimensions)
        for key in shapes[name]
        if key in {"min", "max", "pattern"}
    }
    assert constraints == {
        ("MetricName", "min"),
        ("MetricName", "max"),
        ("StorageResolution", "min"),
        ("Dimensions", "max"),
        ("DimensionName", "min"),
        ("DimensionName", "max"),
        ("DimensionValue", "min"),
        ("DimensionValue", "max"),
    }


@pytest.mark.parametrize("namespace", ["Karrot", "GumGum/Kafka/Burrow/ConsumerLag", "a.b-c_d/e#f:g", "x" * 255])
def test_a_namespace_that_cloudwatch_takes_is_taken(namespace: str) -> None:
    assert check_namespace(namespace) is None
    assert re.fullmatch(service_model()["Namespace"]["pattern"], namespace)


@pytest.mark.parametrize("namespace", ["", ":a", "AWS/ECS", "a b", "é", "x" * 256, "a\n"])
def test_a_namespace_that_cloudwatch_refuses_is_refused_with_a_sentence(namespace: str) -> None:
    told = check_namespace(namespace)
    assert told is not None
    assert told.startswith("The namespace is ")
