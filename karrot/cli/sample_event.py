"""A made-up event, as Burrow posts it."""

import uuid
from datetime import UTC, datetime

from karrot.burrow.payload import to_wire
from karrot.event import LagEvent, OffsetSample, PartitionLag

__all__ = ["CLUSTER", "group", "sample"]


CLUSTER = "karrot-sample"
_COMMIT_EVERY_MS = 60_000
_WINDOW_MS = 9 * _COMMIT_EVERY_MS


def group(number: int) -> str:
    """The name of a made-up group."""
    return f"sample-group-{number}"


def sample(status: str, number: int, now_ms: int) -> bytes:
    """A body as Burrow v1.9.5 posts it for a made-up group: ten commits, two of six partitions bad if not OK."""
    bad = () if status == "OK" else (_partition(0, status, now_ms), _partition(3, status, now_ms))
    largest = bad[0] if bad else _partition(0, status, now_ms)
    event = LagEvent(
        cluster=CLUSTER,
        consumer=group(number),
        status_text=status,
        total_lag=sum(each.current_lag or 0 for each in bad or (largest,)),
        observed_at_ms=now_ms,
        incident_id=str(uuid.uuid4()) if bad else None,
        incident_start=datetime.fromtimestamp((now_ms - _WINDOW_MS) // 1000, UTC) if bad else None,
        complete=1.0,
        partition_count=6,
        max_lag=largest,
        partitions=bad,
    )
    return to_wire(event)


def _partition(number: int, status: str, now_ms: int) -> PartitionLag:
    """WARN: the lag grows while offsets move; ERR: they do not move (STALL)."""
    read = {"OK": 900, "WARN": 600, "ERR": 0}[status]
    return PartitionLag(
        topic="sample-topic",
        partition=number,
        status_text="STALL" if status == "ERR" else status,
        current_lag=1000 - read,
        start=_commit(now_ms - _WINDOW_MS - 1000, offset=5000, lag=100),
        end=_commit(now_ms - 1000, offset=5000 + read, lag=1000 - read),
        owner="/127.0.0.1",
        client_id="karrot-send-sample",
        complete=1.0,
    )


def _commit(at_ms: int, *, offset: int, lag: int) -> OffsetSample:
    return OffsetSample(offset, at_ms, lag, at_ms // 1000 * 1000)
