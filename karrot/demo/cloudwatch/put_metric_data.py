"""Decodes PutMetricData requests into typed values: AWS JSON 1.0, plain or in gzip."""

import zlib
from typing import Literal

import msgspec

_MOST_INFLATED = 64 * 1024 * 1024
_GZIP = zlib.MAX_WBITS | 16

Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""What JSON has no number for travels as a word."""


class Malformed(Exception):  # noqa: N818 (the name says what the body is)
    """The body is not what the protocol says; the message is for the caller."""


class _Wire(msgspec.Struct, rename="pascal", frozen=True, gc=False):
    """Members are absent or null alike; unknown ones are ignored, as AWS JSON does."""


class Dimension(_Wire, frozen=True):
    """Both are required; the validation says so."""

    name: str | None = None
    value: str | None = None


class StatisticSet(_Wire, frozen=True):
    """Aggregated by the caller."""

    sample_count: Number | None = None
    sum: Number | None = None
    minimum: Number | None = None
    maximum: Number | None = None


class MetricDatum(_Wire, frozen=True):
    """Times are epoch seconds."""

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
    """What a metric is about, for the Explore related pane."""

    key_attributes: dict[str, str] | None = None
    attributes: dict[str, str] | None = None


class EntityMetricData(_Wire, frozen=True):
    """Data with the entity they are about."""

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
    """The body before compression; raises `Malformed` for what is not gzip."""
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
    """Raises `Malformed` with the place of what has the wrong type."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from error
