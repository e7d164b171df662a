"""Lists the limits of PutMetricData, from the API reference, the service model and the user guide."""

REQUEST_BYTES = 1_000_000
"""Of the JSON before compression.

The reference says "1 MB" and neither which megabyte nor whether gzip counts: the smaller reading of both, which
whoever keeps to it cannot be wrong with (Amazon's own agent stops at 999,000).
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
"""Nearer to zero is refused as "too small"; zero itself is taken."""

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
