"""Summarizes an event: makes the `EventSummary` that the state of its group keeps. Pure."""

from karrot.event import LagEvent, Status
from karrot.eventlog.base import EventSummary
from karrot.signals import signals_of

BAD_STATUSES = (Status.WARN, Status.STOP, Status.STALL, Status.REWIND)
"""The order of ``EventSummary.bad``."""

_FUTURE_MS = 86_400_000
"""A commit further ahead than this was misread (Burrow v1.9.5 reads some of Kafka 4.1's near 8e18)."""


def summarize(event: LagEvent, received_at_ms: int) -> EventSummary:
    """The summary of an event: all that an exporter needs of it."""
    known = event.status is not Status.NOTFOUND
    largest = event.max_lag if known else None
    return EventSummary(
        status_text=event.status_text,
        kind=event.kind,
        source=event.source,
        observed_at_ms=event.observed_at_ms,
        received_at_ms=received_at_ms,
        total_lag=event.total_lag if known else None,
        max_lag=largest.current_lag if largest else None,
        max_lag_topic=largest.topic if largest else None,
        partition_count=event.partition_count,
        complete=event.complete,
        bad=_bad(event),
        last_commit_ms=_last_commit_ms(event),
        signals=signals_of(event),
    )


def _bad(event: LagEvent) -> tuple[int, int, int, int]:
    if not event.partitions:
        return 0, 0, 0, 0
    statuses = [partition.status for partition in event.partitions]
    warn, stop, stall, rewind = map(statuses.count, BAD_STATUSES)
    return warn, stop, stall, rewind


def _last_commit_ms(event: LagEvent) -> int | None:
    if event.max_lag is None or event.max_lag.end is None:
        return None
    timestamp_ms = event.max_lag.end.timestamp_ms
    return timestamp_ms if 0 < timestamp_ms < event.observed_at_ms + _FUTURE_MS else None
