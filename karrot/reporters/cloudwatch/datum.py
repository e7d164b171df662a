"""One data point as CloudWatch takes it, and how many bytes it is on the wire."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from types_boto3_cloudwatch.literals import StandardUnitType
    from types_boto3_cloudwatch.type_defs import MetricDatumTypeDef

__all__ = ["STANDARD_RESOLUTION", "Datum", "Dimensions", "MetricKey"]

STANDARD_RESOLUTION = 60
"""Seconds; what CloudWatch assumes of a datum that does not say."""

Dimensions = tuple[tuple[str, str], ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEPARATOR = len(", ")


class MetricKey(NamedTuple):
    """What makes a metric within a namespace: of one key only the newest datum matters."""

    metric: str
    dimensions: Dimensions


@dataclass(frozen=True, slots=True)
class Datum:
    """One value of one metric. ``unit`` ``None`` leaves the unit out; ``resolution`` is 1 or 60 seconds."""

    metric: str
    dimensions: Dimensions
    value: float
    unit: "StandardUnitType | None"
    timestamp_ms: int
    resolution: int = STANDARD_RESOLUTION

    @property
    def key(self) -> MetricKey:
        """The metric it belongs to."""
        return MetricKey(self.metric, self.dimensions)

    def wire(self) -> "MetricDatumTypeDef":
        """As boto3 takes it. The timestamp is aware: a naive one would be sent as if it were UTC.

        Raises `OverflowError` for a timestamp beyond the year 9999, which validation refuses long before.
        """
        wire: MetricDatumTypeDef = {
            "MetricName": self.metric,
            "Value": self.value,
            "Timestamp": _EPOCH + timedelta(milliseconds=self.timestamp_ms),
        }
        if self.dimensions:
            wire["Dimensions"] = [{"Name": name, "Value": value} for name, value in self.dimensions]
        if self.unit is not None:
            wire["Unit"] = self.unit
        if self.resolution != STANDARD_RESOLUTION:
            wire["StorageResolution"] = self.resolution
        return wire

    def size(self) -> int:
        """Bytes of its uncompressed JSON with the separator after it: an upper bound for a datum that is valid.

        boto3 writes ``json.dumps`` with its default separators, all but ASCII escaped, and times as seconds.
        """
        spelled = {**self.wire(), "Timestamp": self.timestamp_ms / 1000}
        return len(json.dumps(spelled)) + _SEPARATOR
