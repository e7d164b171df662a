"""Data into requests: as few as both limits of ``PutMetricData`` allow."""

import json
from collections.abc import Iterable, Iterator

from karrot.reporters.cloudwatch.datum import Datum

__all__ = ["MAX_BYTES", "MAX_DATA", "batches", "envelope"]

MAX_DATA = 1000
"""Data per request."""

MAX_BYTES = 900_000
"""Bytes of uncompressed JSON per request: CloudWatch takes 1 MB, and says of which kind nowhere."""


def envelope(namespace: str) -> int:
    """Bytes of a request without data."""
    return len(json.dumps({"Namespace": namespace, "MetricData": []}))


def batches(data: Iterable[Datum], namespace: str) -> Iterator[list[Datum]]:
    """The data in order, in lists that fit a request each. A datum that would fill one alone is one."""
    empty = envelope(namespace)
    batch: list[Datum] = []
    size = empty
    for datum in data:
        added = datum.size()
        if batch and (len(batch) == MAX_DATA or size + added > MAX_BYTES):
            yield batch
            batch, size = [], empty
        batch.append(datum)
        size += added
    if batch:
        yield batch
