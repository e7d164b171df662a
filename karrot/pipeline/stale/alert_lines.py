"""Makes the lines of JSON that tell about alerts, from the rows that a batch changed."""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
from pyspark.sql import Row

from karrot.event import lag_at
from karrot.text import iso_ms


def lines_of(row: Row) -> Iterator[str]:
    """The lines of a row of `STANDINGS`: the alert that the batch cleared, and then the alert that it opened."""
    if row.cleared_offset is not None:
        yield _line("cleared", row, row.cleared_offset, row.cleared_since_ms)
    if row.fired:
        yield _line("stale", row, row.offset, row.since_ms)


def _line(state: str, row: Row, offset: int, since_ms: int) -> str:
    """Make one line. ``id`` identifies the alert: its lines "stale" and "cleared" have the same ``id``."""
    key = {"cluster": row.cluster, "group": row.consumer, "topic": row.topic, "partition": row.partition}
    named = msgspec.json.encode(([*key.values()], (offset, since_ms)))
    facts: dict[str, Any] = {
        "state": state,
        "id": hashlib.sha256(named).hexdigest()[:16],
        **key,
        "current_offset": row.offset,
        "log_end_offset": row.end_offset,
        "lag": None if row.offset is None else lag_at(row.end_offset, row.looked_at_ms, row.offset, row.at_ms),
        "since": iso_ms(since_ms),
        "committed_at": iso_ms(row.at_ms),
        "looked_at": iso_ms(row.looked_at_ms),
    }
    return msgspec.json.encode(facts).decode()
