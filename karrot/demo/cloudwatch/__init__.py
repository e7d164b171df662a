"""Fakes a strict CloudWatch for tests, benchmarks and the demo.

PutMetricData over HTTP in AWS JSON 1.0 (gzip too) and in the older query protocol, with every documented limit, the
real error codes and as far as they are known the real messages; all or nothing. Faults can be scripted.
"""

from karrot.demo.cloudwatch.fake_cloudwatch import FakeCloudWatch
from karrot.demo.cloudwatch.injected_faults import (
    ACCESS_DENIED,
    EXPIRED_TOKEN,
    HANG,
    HANG_AFTER_KEEPING,
    INTERNAL_ERROR,
    REQUEST_LIMIT_EXCEEDED,
    RESET,
    RESET_AFTER_KEEPING,
    SIGNATURE_DOES_NOT_MATCH,
    THROTTLING,
    THROTTLING_WITHOUT_QUERY_ERROR,
    TOO_LARGE,
    TOO_MANY_REQUESTS,
    UNAVAILABLE,
    UNRECOGNIZED_CLIENT,
    Fault,
    Hang,
    Refuse,
    Reset,
    Script,
    SlowDrip,
    without_query_error,
)
from karrot.demo.cloudwatch.metric_store import Call, MetricId, Statistics, StoredDatum, StoredPoint

__all__ = [
    "ACCESS_DENIED",
    "EXPIRED_TOKEN",
    "HANG",
    "HANG_AFTER_KEEPING",
    "INTERNAL_ERROR",
    "REQUEST_LIMIT_EXCEEDED",
    "RESET",
    "RESET_AFTER_KEEPING",
    "SIGNATURE_DOES_NOT_MATCH",
    "THROTTLING",
    "THROTTLING_WITHOUT_QUERY_ERROR",
    "TOO_LARGE",
    "TOO_MANY_REQUESTS",
    "UNAVAILABLE",
    "UNRECOGNIZED_CLIENT",
    "Call",
    "FakeCloudWatch",
    "Fault",
    "Hang",
    "MetricId",
    "Refuse",
    "Reset",
    "Script",
    "SlowDrip",
    "Statistics",
    "StoredDatum",
    "StoredPoint",
    "without_query_error",
]
