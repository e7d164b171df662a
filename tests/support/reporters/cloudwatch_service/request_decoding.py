"""Decodes PutMetricData requests (AWS JSON 1.0, plain or gzipped) into typed values."""

import zlib
from typing import Literal

import msgspec

_MOST_INFLATED = 64 * 1024 * 1024
_GZIP = zlib.MAX_WBITS | 16

Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number. JSON has no NaN and no infinity, so these are sent as words."""


class Malformed(Exception):  # noqa: N818 (the name describes the body)
    """The body does not follow the protocol; the message is for the client."""


class _Wire(msgspec.Struct, rename="pascal", frozen=True, gc=False):
    """The base of the JSON types. As in AWS JSON, a null member counts as absent, and unknown members are ignored."""


class Dimension(_Wire, frozen=True):
    """A dimension. Both members are required; the validation checks that."""

    name: str | None = None
    value: str | None = None


class StatisticSet(_Wire, frozen=True):
    """Values that the client has aggregated."""

    sample_count: Number | None = None
    sum: Number | None = None
    minimum: Number | None = None
    maximum: Number | None = None


class MetricDatum(_Wire, frozen=True):
    """One datum. Its timestamp is in epoch seconds."""

    metric_name: str | None = None
    dimensions: list[Dimension] | None = None
    timestamp: float | None = None
    value: Number | None = None
    statistic_values: StatisticSet | None = None
    values: list[Number] | None = None
    counts: list[Number] | None = None
    unit: str | None = None
    storage_resolution: int | None = None


class Entity(_Wire, frozen=True):
    """The entity that a metric belongs to, for CloudWatch's "Explore related" pane."""

    key_attributes: dict[str, str] | None = None
    attributes: dict[str, str] | None = None


class EntityMetricData(_Wire, frozen=True):
    """Data with the entity that they belong to."""

    entity: Entity | None = None
    metric_data: list[MetricDatum] | None = None


class PutMetricDataRequest(_Wire, frozen=True):
    """The whole request."""

    namespace: str | None = None
    metric_data: list[MetricDatum] | None = None
    entity_metric_data: list[EntityMetricData] | None = None
    strict_entity_validation: bool | None = None


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
