"""Decodes a PutMetricData request (AWS JSON 1.0, plain or gzipped), and reports mistakes as the real server does.

If a message of the real server is known, it is used unchanged. For a rule without a known message, a similar message is
used. Members are counted from 1. Only the members that Karrot sends are known: a request with another member, such as
``Values`` or ``EntityMetricData``, is malformed.
"""

import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Literal, NamedTuple

import msgspec

# The limits of PutMetricData, from the API reference, the service model and the user guide.
REQUEST_BYTES = 1_000_000
"""The limit of the JSON before compression.

The reference says "1 MB". It does not say which megabyte, or whether gzip counts. This is the smallest possible
meaning, so a sender within this limit is right in any case (Amazon's own agent stops at 999,000).
"""
DATA = 1000
DIMENSIONS = 30

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

_NAMESPACE = re.compile(r"[0-9A-Za-z.\-_/#: ]*")  # the space: cloudwatch_concepts.html#Namespace
_UNITS = frozenset(UNITS)
_MOST_INFLATED = 64 * 1024 * 1024
_GZIP = zlib.MAX_WBITS | 16

Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number. JSON has no NaN and no infinity, so these are sent as words."""


class Malformed(Exception):  # noqa: N818 (the name describes the body)
    """The body does not follow the protocol; the message is for the client."""


class _Wire(msgspec.Struct, rename="pascal", frozen=True, gc=False, forbid_unknown_fields=True):
    """The base of the JSON types."""


class Dimension(_Wire, frozen=True):
    """A dimension. Both members are required; the validation checks that."""

    name: str | None = None
    value: str | None = None


class MetricDatum(_Wire, frozen=True):
    """One datum. Its timestamp is in epoch seconds."""

    metric_name: str | None = None
    dimensions: list[Dimension] | None = None
    timestamp: float | None = None
    value: Number | None = None
    unit: str | None = None
    storage_resolution: int | None = None


class PutMetricDataRequest(_Wire, frozen=True):
    """The whole request."""

    namespace: str | None = None
    metric_data: list[MetricDatum] | None = None


_decoder = msgspec.json.Decoder(PutMetricDataRequest)


def inflate(body: bytes, encoding: str) -> bytes:
    """The uncompressed body. Raises `Malformed` if the body is not valid gzip."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise Malformed(f"Unsupported Content-Encoding {encoding}")
    inflating = zlib.decompressobj(_GZIP)
    try:
        inflated = inflating.decompress(body, _MOST_INFLATED)
    except zlib.error as error:
        raise Malformed("The body is not gzip") from error
    if not inflating.eof and len(inflated) < _MOST_INFLATED:
        raise Malformed("The gzip body ends too early")
    return inflated


def decode_json(body: bytes) -> PutMetricDataRequest:
    """Decode a request. Raises `Malformed` with the path of the value that has a wrong type."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from error


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
    return [*_namespace_problems(request.namespace or ""), *_data_problems(request.metric_data or (), now_ms)]


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


def _data_problems(data: Sequence[MetricDatum], now_ms: int) -> Iterator[RequestProblem]:
    if not data:
        yield _missing("MetricData")
    if len(data) > DATA:
        yield _too_many("MetricData", DATA)
        return  # do not check the members of a list that is too long
    for number, datum in enumerate(data, 1):
        yield from _datum_problems(datum, f"MetricData.member.{number}", now_ms)


def _datum_problems(datum: MetricDatum, path: str, now_ms: int) -> Iterator[RequestProblem]:
    yield from _text_problems(datum.metric_name, f"{path}.MetricName", METRIC_NAME)
    if datum.dimensions:
        yield from _dimensions_problems(datum.dimensions, f"{path}.Dimensions")
    if datum.timestamp is not None:
        yield from _time_problems(datum.timestamp * 1000, now_ms, f"{path}.Timestamp")
    yield from _value_problems(datum.value, path)
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


def _value_problems(value: Number | None, path: str) -> Iterator[RequestProblem]:
    if value is None:
        words = f"At least one of the parameters {path}.Value and {path}.StatisticValues must be specified."
        yield RequestProblem(Wrong.COMBINATION, words)
        return
    number = float(value)
    if not (number == 0 or LEAST <= abs(number) <= GREATEST):  # NaN is neither
        yield _invalid("?" if math.isnan(number) else value, f"{path}.Value")
