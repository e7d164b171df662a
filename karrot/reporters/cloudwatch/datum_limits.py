"""What CloudWatch refuses, known before it is sent: one bad datum would cost the whole request.

The rules are those of the documentation of ``PutMetricData`` and of its service model.
"""

import re
from enum import StrEnum

from karrot.reporters.cloudwatch.datum import Datum, Dimensions
from karrot.reporters.cloudwatch.naming import MAX_DIMENSION_VALUE, MAX_METRIC_NAME
from karrot.settings import types

__all__ = [
    "MAX_AGE_MS",
    "MAX_AHEAD_MS",
    "MAX_DIMENSIONS",
    "MAX_DIMENSION_NAME",
    "MAX_MAGNITUDE",
    "RESOLUTIONS",
    "UNITS",
    "Reason",
    "check_namespace",
    "why_refused",
]


class Reason(StrEnum):
    """Why a datum is refused. Stable: these are words of logs and values of labels."""

    METRIC_NAME = "metric_name"
    DIMENSION = "dimension"
    VALUE = "value"
    UNIT = "unit"
    RESOLUTION = "resolution"
    TOO_OLD = "too_old"
    TOO_NEW = "too_new"

    @property
    def sentence(self) -> str:
        """The rule that is broken, for a person."""
        return _RULES[self]


_RULES = {
    Reason.METRIC_NAME: "the name of a metric is 1 to 255 characters of printable ASCII",
    Reason.DIMENSION: "dimensions are at most 30, with names and values of printable ASCII that are not too long",
    Reason.VALUE: "a value is a number between -2^360 and 2^360",
    Reason.UNIT: "the unit is none that CloudWatch knows",
    Reason.RESOLUTION: "the storage resolution is 1 or 60 seconds",
    Reason.TOO_OLD: "it was observed more than two weeks ago, by the clocks of its source and of this machine",
    Reason.TOO_NEW: "it was observed more than two hours ahead of this machine's clock",
}

MAX_DIMENSIONS = 30
MAX_DIMENSION_NAME = 255
MAX_MAGNITUDE = 2.0**360
RESOLUTIONS = (1, 60)

_SKEW_MS = 5 * 60 * 1000  # clocks further apart than this fail at the signature, whatever the datum says
MAX_AGE_MS = 14 * 86_400_000 - _SKEW_MS
MAX_AHEAD_MS = 2 * 3_600_000 - _SKEW_MS

_SIZES = ("Bytes", "Kilobytes", "Megabytes", "Gigabytes", "Terabytes", "Bits", "Kilobits", "Megabits", "Gigabits")
_PER_SECOND = (*_SIZES, "Terabits", "Count")
UNITS = frozenset(
    ("Seconds", "Microseconds", "Milliseconds", "Percent", "None", *_PER_SECOND, *(f"{u}/Second" for u in _PER_SECOND))
)

_TEXT = re.compile(r" *[!-~][ -~]*")  # printable ASCII, and not blank


def why_refused(datum: Datum, now_ms: int) -> Reason | None:
    """The first reason why CloudWatch would refuse a datum that is sent now; ``None`` if it would not."""
    if not _is_text(datum.metric, MAX_METRIC_NAME):
        return Reason.METRIC_NAME
    if not _are_dimensions(datum.dimensions):
        return Reason.DIMENSION
    if not _is_value(datum.value):
        return Reason.VALUE
    if datum.unit is not None and datum.unit not in UNITS:
        return Reason.UNIT
    if datum.resolution not in RESOLUTIONS:
        return Reason.RESOLUTION
    return _untimely(datum.timestamp_ms, now_ms)


def check_namespace(text: str) -> str | None:
    """A sentence that says why a namespace cannot be used, or ``None``."""
    try:
        types.checked(types.namespace, "The namespace", text)
    except ValueError as error:
        return str(error)
    return None


def _untimely(timestamp_ms: int, now_ms: int) -> Reason | None:
    if timestamp_ms < now_ms - MAX_AGE_MS:
        return Reason.TOO_OLD
    return Reason.TOO_NEW if timestamp_ms > now_ms + MAX_AHEAD_MS else None


def _is_value(value: float) -> bool:
    """A flag is a number to Python, and boto3 would send it as ``true``; NaN is within no bounds."""
    return not isinstance(value, bool) and -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE


def _are_dimensions(dimensions: Dimensions) -> bool:
    if len(dimensions) > MAX_DIMENSIONS or len(dict(dimensions)) < len(dimensions):
        return False
    return all(
        _is_text(name, MAX_DIMENSION_NAME) and not name.startswith(":") and _is_text(value, MAX_DIMENSION_VALUE)
        for name, value in dimensions
    )


def _is_text(text: str, longest: int) -> bool:
    return len(text) <= longest and _TEXT.fullmatch(text) is not None
