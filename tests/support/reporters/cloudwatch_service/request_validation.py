"""Validates a PutMetricData request, and reports mistakes with the messages of the real server.

If a message of the real server is known, it is used unchanged. For a rule without a known message, a similar message is
used. Members are counted from 1.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from support.reporters.cloudwatch_service.request_decoding import (
    Dimension,
    Entity,
    MetricDatum,
    Number,
    PutMetricDataRequest,
    StatisticSet,
)

# The limits of PutMetricData, from the API reference, the service model and the user guide.
REQUEST_BYTES = 1_000_000
"""The limit of the JSON before compression.

The reference says "1 MB". It does not say which megabyte, or whether gzip counts. This is the smallest possible
meaning, so a sender within this limit is right in any case (Amazon's own agent stops at 999,000).
"""
DATA = 1000
DIMENSIONS = 30
VALUES = 150
ENTITIES = 2

NAMESPACE = 255
METRIC_NAME = 255
DIMENSION_NAME = 255
DIMENSION_VALUE = 1024

GREATEST = 2.0**360
LEAST = 2.0**-360
"""A value closer to zero is refused as "too small"; zero itself is accepted."""

OLDEST_MS = 14 * 24 * 3600 * 1000
NEWEST_MS = 2 * 3600 * 1000

RESOLUTIONS = (1, 60)
_SIZES = ("Bytes", "Kilobytes", "Megabytes", "Gigabytes", "Terabytes")
_BITS = ("Bits", "Kilobits", "Megabits", "Gigabits", "Terabits")
UNITS = (
    *("Seconds", "Microseconds", "Milliseconds", *_SIZES, *_BITS, "Percent", "Count"),
    *(f"{unit}/Second" for unit in (*_SIZES, *_BITS, "Count")),
    "None",
)

ENTITY_KEYS = (2, 4)
ENTITY_ATTRIBUTES = (0, 10)

_NAMESPACE = re.compile(r"[0-9A-Za-z.\-_/#: ]*")  # the space: cloudwatch_concepts.html#Namespace
_UNITS = frozenset(UNITS)
_STATISTICS = {"SampleCount": "sample_count", "Sum": "sum", "Minimum": "minimum", "Maximum": "maximum"}


class Wrong(Enum):
    """The kinds of mistake, in the order of the checks. The answer reports the first kind that is found."""

    MISSING = "MissingParameter"
    VALUE = "InvalidParameterValue"
    COMBINATION = "InvalidParameterCombination"


class RequestProblem(NamedTuple):
    """One mistake, which is one line of the answer."""

    wrong: Wrong
    text: str


def problems(request: PutMetricDataRequest, now_ms: int) -> list[RequestProblem]:
    """All mistakes in a request; empty if the request is accepted."""
    return [*_namespace_problems(request.namespace or ""), *_collection_problems(request, now_ms)]


def entity_problems(request: PutMetricDataRequest) -> list[RequestProblem]:
    """All mistakes in the entities. They refuse a request only with ``StrictEntityValidation``."""
    return [
        problem
        for number, entry in enumerate(request.entity_metric_data or (), 1)
        for problem in _one_entity_problems(entry.entity, f"EntityMetricData.member.{number}.Entity")
    ]


def _missing(path: str) -> RequestProblem:
    return RequestProblem(Wrong.MISSING, f"The parameter {path} is required.")


def _invalid(value: object, path: str) -> RequestProblem:
    return RequestProblem(Wrong.VALUE, f"The value {value} for parameter {path} is invalid.")


def _too_many(path: str, most: int) -> RequestProblem:
    return RequestProblem(Wrong.VALUE, f"The collection {path} must not have a size greater than {most}.")


def _not_in_set(path: str, allowed: Iterable[object]) -> RequestProblem:
    return RequestProblem(
        Wrong.VALUE, f"The parameter {path} must be a value in the set [ {', '.join(map(str, allowed))} ]."
    )


def _both(first: str, second: str) -> RequestProblem:
    return RequestProblem(
        Wrong.COMBINATION, f"The parameters {first} and {second} are mutually exclusive and you have specified both."
    )


def _text_problems(text: str | None, path: str, most: int) -> Iterable[RequestProblem]:
    is_good = text and len(text) <= most and text.isascii() and text.isprintable() and not text.isspace()
    return () if is_good else _wrong_text(text, path, most)  # the fast path, because nearly all texts are good


def _wrong_text(text: str | None, path: str, most: int) -> Iterator[RequestProblem]:
    if not text:
        yield _missing(path)
        return
    if len(text) > most:
        yield RequestProblem(Wrong.VALUE, f"The parameter {path} must be shorter than {most + 1} characters.")
    if not text.isascii():
        yield RequestProblem(Wrong.VALUE, f"The value for parameter {path} contains non-ASCII characters.")
    elif not text.isprintable():
        yield RequestProblem(Wrong.VALUE, f"The value for parameter {path} contains control characters.")
    if text.isspace():
        yield RequestProblem(Wrong.VALUE, f"The value for parameter {path} must contain a non-whitespace character.")


def _namespace_problems(namespace: str) -> Iterator[RequestProblem]:
    yield from _text_problems(namespace, "Namespace", NAMESPACE)
    if namespace.startswith("AWS/"):
        yield _invalid("AWS/", "Namespace")
    elif namespace.startswith(":") or (
        namespace.isascii() and namespace.isprintable() and not _NAMESPACE.fullmatch(namespace)
    ):
        yield _invalid(namespace, "Namespace")


def members(request: PutMetricDataRequest) -> Iterator[tuple[str, MetricDatum]]:
    """Every datum with its path."""
    for number, datum in enumerate(request.metric_data or (), 1):
        yield f"MetricData.member.{number}", datum
    for entity_number, entry in enumerate(request.entity_metric_data or (), 1):
        for number, datum in enumerate(entry.metric_data or (), 1):
            yield f"EntityMetricData.member.{entity_number}.MetricData.member.{number}", datum


def _collection_problems(request: PutMetricDataRequest, now_ms: int) -> Iterator[RequestProblem]:
    data = list(members(request))
    if not data:
        yield _missing("MetricData")
    if len(request.entity_metric_data or ()) > ENTITIES:
        yield _too_many("EntityMetricData", ENTITIES)
    if len(data) > DATA:
        yield _too_many("MetricData", DATA)
        return  # do not check the members of a list that is too long
    for path, datum in data:
        yield from _datum_problems(datum, path, now_ms)


def _datum_problems(datum: MetricDatum, path: str, now_ms: int) -> Iterator[RequestProblem]:
    yield from _text_problems(datum.metric_name, f"{path}.MetricName", METRIC_NAME)
    if datum.dimensions:
        yield from _dimensions_problems(datum.dimensions, f"{path}.Dimensions")
    if datum.timestamp is not None:
        yield from _time_problems(datum.timestamp * 1000, now_ms, f"{path}.Timestamp")
    yield from _choice_problems(datum, path)
    yield from _number_problems(datum, path)
    if datum.unit is not None and datum.unit not in _UNITS:
        yield _not_in_set(f"{path}.Unit", UNITS)
    if datum.storage_resolution not in (None, *RESOLUTIONS):
        yield _not_in_set(f"{path}.StorageResolution", RESOLUTIONS)


def _dimensions_problems(dimensions: Sequence[Dimension], path: str) -> Iterator[RequestProblem]:
    if len(dimensions) > DIMENSIONS:
        yield _too_many(path, DIMENSIONS)
    for number, dimension in enumerate(dimensions, 1):
        name_path = f"{path}.member.{number}.Name"
        yield from _text_problems(dimension.name, name_path, DIMENSION_NAME)
        yield from _text_problems(dimension.value, f"{path}.member.{number}.Value", DIMENSION_VALUE)
        if dimension.name and dimension.name.startswith(":"):
            yield _invalid(dimension.name, name_path)
    if len({dimension.name for dimension in dimensions}) < len(dimensions):
        yield RequestProblem(Wrong.VALUE, "No metric may specify the same dimension name twice.")  # names no member


def _time_problems(at_ms: float, now_ms: int, path: str) -> Iterable[RequestProblem]:
    if now_ms - OLDEST_MS <= round(at_ms) <= now_ms + NEWEST_MS:
        return ()
    return [RequestProblem(Wrong.VALUE, f"The parameter {path} must specify a time within the past two weeks.")]


def _choice_problems(datum: MetricDatum, path: str) -> Iterator[RequestProblem]:
    """Mistakes in the choice between Value, Values and StatisticValues."""
    value, values, statistics = f"{path}.Value", f"{path}.Values", f"{path}.StatisticValues"
    if datum.value is not None and datum.statistic_values is not None:
        yield _both(value, statistics)
    if datum.value is not None and datum.values:
        yield _both(value, values)
    if datum.values and datum.statistic_values is not None:
        yield _both(values, statistics)
    if datum.value is None and not datum.values and datum.statistic_values is None:
        words = f"At least one of the parameters {value} and {statistics} must be specified."
        yield RequestProblem(Wrong.COMBINATION, words)


def _number_problems(datum: MetricDatum, path: str) -> Iterator[RequestProblem]:
    if datum.value is not None:
        yield from _range_problems(datum.value, f"{path}.Value")
    for name, numbers in (("Values", datum.values or ()), ("Counts", datum.counts or ())):
        if len(numbers) > VALUES:
            yield _too_many(f"{path}.{name}", VALUES)
        for number, value in enumerate(numbers, 1):
            yield from _range_problems(value, f"{path}.{name}.member.{number}")
    if datum.counts and len(datum.counts) != len(datum.values or ()):
        words = f"The parameters {path}.Values and {path}.Counts must be of the same size."
        yield RequestProblem(Wrong.VALUE, words)
    if datum.statistic_values is not None:
        yield from _statistics_problems(datum.statistic_values, f"{path}.StatisticValues")


def _range_problems(value: Number, path: str) -> Iterable[RequestProblem]:
    number = float(value)
    if number == 0 or LEAST <= abs(number) <= GREATEST:  # NaN is neither
        return ()
    return [_invalid("?" if math.isnan(number) else value, path)]


def _statistics_problems(statistics: StatisticSet, path: str) -> Iterator[RequestProblem]:
    numbers = {name: getattr(statistics, member) for name, member in _STATISTICS.items()}
    for name, value in numbers.items():
        if value is None:
            yield _missing(f"{path}.{name}")
        else:
            yield from _range_problems(value, f"{path}.{name}")
    if None in numbers.values():
        return
    if float(numbers["Maximum"]) < float(numbers["Minimum"]):
        yield RequestProblem(Wrong.VALUE, f"The parameter {path}.Maximum must be greater than {path}.Minimum.")
    if float(numbers["SampleCount"]) <= 0:
        yield RequestProblem(Wrong.VALUE, f"The parameter {path}.SampleCount must be greater than 0.")


def _one_entity_problems(entity: Entity | None, path: str) -> Iterator[RequestProblem]:
    keys = (entity.key_attributes if entity else None) or {}
    attributes = (entity.attributes if entity else None) or {}
    for name, entries, (fewest, most) in (
        ("KeyAttributes", keys, ENTITY_KEYS),
        ("Attributes", attributes, ENTITY_ATTRIBUTES),
    ):
        if not fewest <= len(entries) <= most:
            words = f"The collection {path}.{name} must have a size between {fewest} and {most}."
            yield RequestProblem(Wrong.VALUE, words)
