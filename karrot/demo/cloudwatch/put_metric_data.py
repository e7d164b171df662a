"""Decodes PutMetricData requests into typed values: AWS JSON 1.0, gzip and the older query protocol."""

import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

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


def decode_query(parameters: Mapping[str, str]) -> PutMetricDataRequest:
    """From ``MetricData.member.1.Dimensions.member.1.Name=...``, the form that boto3 spoke until 2025."""
    try:
        return msgspec.convert(_nested(parameters), PutMetricDataRequest, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise Malformed(str(error)) from error


def _nested(parameters: Mapping[str, str]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path, text in parameters.items():
        *folders, leaf = path.split(".")
        node = root
        for folder in folders:
            node = node.setdefault(folder, {})
            if not isinstance(node, dict):
                raise Malformed(f"{path} is below a value")
        node[leaf] = _epoch_seconds(text) if leaf == "Timestamp" else text
    listed: dict[str, Any] = _with_lists(root)
    return listed


def _with_lists(node: Any) -> Any:
    """``{"member": {"1": x, "2": y}}`` is a list."""
    if not isinstance(node, dict):
        return node
    if set(node) == {"member"}:
        members = node["member"]
        return [_with_lists(members[number]) for number in sorted(members, key=int)]
    return {name: _with_lists(child) for name, child in node.items()}


def _epoch_seconds(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
