"""Defines a datum of ``PutMetricData``, checks it against CloudWatch's limits, and puts data into requests.

CloudWatch refuses a whole request if one datum is bad. Names are encoded so that CloudWatch accepts every name. A value
or a timestamp from another program can still be bad. `why_refused` finds such data before a send.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from karrot.text import EPOCH

if TYPE_CHECKING:
    from types_boto3_cloudwatch.literals import StandardUnitType
    from types_boto3_cloudwatch.type_defs import MetricDatumTypeDef

EMPTY = "(empty)"
"""The encoding of the empty name."""

MAX_DIMENSION_VALUE = 1024
MAX_METRIC_NAME = 255

_NOT_PLAIN = re.compile(r"[^ -$&-~]")
_PRINTABLE = re.compile(r" *[!-~][ -~]*")
_DIGEST = 8
_CUT = re.compile(rf".*~[0-9a-f]{{{_DIGEST}}}")


class Encoded(NamedTuple):
    """A name in a form that CloudWatch accepts. ``cut`` says that the name was cut, and cannot be decoded."""

    text: str
    cut: bool


def dimension_value(name: str) -> Encoded:
    return _within(name, MAX_DIMENSION_VALUE)


def metric_name(name: str) -> Encoded:
    """Encode a group's name for the legacy layout. A printable name stays, unless it looks like an encoded name."""
    if _PRINTABLE.fullmatch(name) and not _looks_cut(name, MAX_METRIC_NAME):
        meant = "" if name == EMPTY else unquote(name)
        if meant == name or _encoded(meant) != name:
            return Encoded(name, cut=False)
    return _within(name, MAX_METRIC_NAME)


def _within(name: str, limit: int) -> Encoded:
    text = _encoded(name)
    if not _looks_cut(text, limit):
        return Encoded(text, cut=False)
    head = re.sub("%.?$", "", text[: limit - _DIGEST - 1])
    return Encoded(f"{head}~{sha256(_utf8(name)).hexdigest()[:_DIGEST]}", cut=True)


def _looks_cut(text: str, limit: int) -> bool:
    """Whether the text is too long or looks like a cut name. Both are cut, so that two names never become equal."""
    return len(text) > limit or (len(text) > limit - len("%FF") and _CUT.fullmatch(text) is not None)


def _encoded(name: str) -> str:
    if not name:
        return EMPTY
    plain = "" if name == EMPTY or name.isspace() else name
    return _NOT_PLAIN.sub(lambda found: _escaped(found[0]), plain) or _escaped(name)


def _escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in _utf8(text))


def _utf8(text: str) -> bytes:
    """Encode a name as UTF-8. Lone surrogates, which intake refuses, must not make a send fail."""
    return text.encode("utf-8", "surrogatepass")


STANDARD_RESOLUTION = 60
"""CloudWatch's default resolution of a datum, in seconds."""

Dimensions = tuple[tuple[str, str], ...]

MAX_MAGNITUDE = 2.0**360
_SKEW_MS = 5 * 60 * 1000  # if the clocks differ by more, AWS refuses the signature of the request
MAX_AGE_MS = 14 * 86_400_000 - _SKEW_MS
MAX_AHEAD_MS = 2 * 3_600_000 - _SKEW_MS

MAX_DATA = 1000
"""The most data per request."""

MAX_BYTES = 900_000
"""The most bytes of uncompressed JSON per request. CloudWatch's limit is 1 MB, which may mean 10^6 or 2^20 bytes."""


class MetricKey(NamedTuple):
    """The identity of a metric within a namespace. For each key, only the newest datum matters."""

    metric: str
    dimensions: Dimensions


@dataclass(frozen=True, slots=True)
class Datum:
    """One value of one metric. ``unit`` can be ``None``. ``resolution`` is 1 or 60 seconds."""

    metric: str
    dimensions: Dimensions
    value: float
    unit: "StandardUnitType | None"
    timestamp_ms: int
    resolution: int = STANDARD_RESOLUTION

    @property
    def key(self) -> MetricKey:
        return MetricKey(self.metric, self.dimensions)

    def wire(self) -> "MetricDatumTypeDef":
        """Convert the datum to boto3's format. Raises `OverflowError` for a timestamp after the year 9999."""
        at = EPOCH + timedelta(milliseconds=self.timestamp_ms)
        wire: MetricDatumTypeDef = {"MetricName": self.metric, "Value": self.value, "Timestamp": at}
        if self.dimensions:
            wire["Dimensions"] = [{"Name": name, "Value": value} for name, value in self.dimensions]
        if self.unit is not None:
            wire["Unit"] = self.unit
        if self.resolution != STANDARD_RESOLUTION:
            wire["StorageResolution"] = self.resolution
        return wire

    def size(self) -> int:
        """An upper bound of the datum's size in boto3's JSON with a separator, in bytes."""
        return len(json.dumps({**self.wire(), "Timestamp": self.timestamp_ms / 1000})) + len(", ")


REASONS = {
    "value": "a value must be a number between -2^360 and 2^360",
    "too_old": "it was observed more than two weeks ago, by the clocks of its source and of this machine",
    "too_new": "it was observed more than two hours ahead of this machine's clock",
}
"""The reasons to refuse a datum before a send. The keys are label values, so they are stable."""


def why_refused(datum: Datum, now_ms: int) -> str | None:
    """Return the key in `REASONS` for which CloudWatch would refuse a datum, or ``None`` for a valid datum."""
    if not -MAX_MAGNITUDE <= datum.value <= MAX_MAGNITUDE:  # NaN fails every comparison
        return "value"
    if datum.timestamp_ms < now_ms - MAX_AGE_MS:
        return "too_old"
    return "too_new" if datum.timestamp_ms > now_ms + MAX_AHEAD_MS else None


def envelope(namespace: str) -> int:
    return len(json.dumps({"Namespace": namespace, "MetricData": []}))


def batches(data: Iterable[Datum], namespace: str) -> Iterator[list[Datum]]:
    """Split the data into lists that each fit into one request. A datum that is too large gets its own list."""
    batch, size = list[Datum](), envelope(namespace)
    for datum in data:
        added = datum.size()
        if batch and (len(batch) == MAX_DATA or size + added > MAX_BYTES):
            yield batch
            batch, size = [], envelope(namespace)
        batch.append(datum)
        size += added
    if batch:
        yield batch
