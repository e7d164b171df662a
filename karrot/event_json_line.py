"""Encodes one event as one line of JSON and decodes it. The archive stores these lines, and the pipeline reads them.

```
{"v":1,"event_id":"9f…-1","log_id":"9f…","seq":1,"received_at_ms":1795272998676, … ,"body":"…"}
```

Every line has every key, in the order of the fields below. An unknown value is ``null``. The same code computes the
numbers that the service shows, so readers need not compute the numbers again. ``body`` is the received body, byte for
byte; ``null`` if the archive keeps no bodies. Bodies are almost half of the archive's bytes.
"""

from datetime import timedelta
from typing import Literal, cast

import msgspec
from msgspec.structs import replace

from karrot.burrow.payload import parse_stored
from karrot.event import AgeKind, Kind, LagAge, PartitionLag, Source, TopicPartition
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.signals import Signals
from karrot.text import EPOCH

VERSION: Literal[1] = 1
"""The version of the format changes when a key is removed or changes its meaning. Keys may be added at the end."""

AgeName = Literal["exact", "extrapolated", "at_least"]
_MILLISECOND = timedelta(milliseconds=1)


class PartitionLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One partition. Lags and offsets count messages. ``start`` is the oldest stored commit, ``end`` the newest one."""

    topic: str
    partition: int
    status: str
    owner: str | None
    client_id: str | None
    start_offset: int | None
    start_ts_ms: int | None
    start_lag: int | None
    end_offset: int | None
    end_ts_ms: int | None
    end_lag: int | None
    current_lag: int | None
    complete: float | None


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event. Times are epoch milliseconds, lags are messages (up to 2^64 - 1), rates are messages per second.

    ``bad_partitions`` counts the listed partitions that are WARN, STOP, STALL or REWIND. ``max_partition`` is the
    partition with the largest lag, whether ``partitions`` lists it or not. ``lag_seconds_topic`` and
    ``lag_seconds_partition`` name the partition with the largest lag in seconds. ``lag_seconds_kind`` says how
    precisely that lag is known. Lines from before version 2.0.0 lack these three keys. A deleted group has no lag.
    """

    v: Literal[1] = VERSION
    event_id: str
    log_id: str
    seq: int
    received_at_ms: int
    observed_at_ms: int
    source: Source
    cluster: str
    consumer: str
    status: str
    kind: Kind
    incident_id: str | None
    incident_start_ms: int | None
    total_lag: int | None
    max_lag: int | None
    scalable_lag: int | None
    lag_seconds: float | None
    produce_rate: float | None
    consume_rate: float | None
    catch_up_seconds: float | None
    complete: float | None
    partition_count: int | None
    bad_partitions: int
    max_partition: PartitionLine | None
    partitions: tuple[PartitionLine, ...]
    body: str | None
    lag_seconds_kind: AgeName | None = None
    lag_seconds_topic: str | None = None
    lag_seconds_partition: int | None = None


class MalformedLine(ValueError):  # noqa: N818 (the name describes the line, not an error of Karrot)
    """A line does not have this format and version. The error says where the line is wrong."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(EventLine).decode


def encode(stored: StoredEvent, *, body: bool = True) -> bytes:
    """Encode an event as a line with one line feed, at its end. If ``body`` is false, the key ``body`` is ``null``."""
    line = line_of(stored)
    return _encode(line if body else replace(line, body=None)) + b"\n"


def decode(line: bytes) -> EventLine:
    """Decode a line. Raises `MalformedLine`."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedLine(str(error)) from error


def line_of(stored: StoredEvent) -> EventLine:
    event, began = stored.event, stored.event.incident_start
    summary = stored.summary
    signals = Signals() if summary.kind is Kind.DELETED else summary.signals
    kind, oldest = signals.lag_seconds_kind, signals.lag_seconds_partition
    return EventLine(
        event_id=stored.event_id,
        log_id=stored.log_id,
        seq=stored.seq,
        received_at_ms=stored.received_at_ms,
        observed_at_ms=event.observed_at_ms,
        source=event.source,
        cluster=event.cluster,
        consumer=event.consumer,
        status=event.status_text,
        kind=summary.kind,
        incident_id=event.incident_id,
        incident_start_ms=None if began is None else (began - EPOCH) // _MILLISECOND,
        total_lag=summary.total_lag,
        max_lag=summary.max_lag,
        scalable_lag=signals.scalable_lag,
        lag_seconds=signals.lag_seconds,
        produce_rate=signals.produce_rate,
        consume_rate=signals.consume_rate,
        catch_up_seconds=signals.catch_up_seconds,
        complete=event.complete,
        partition_count=event.partition_count,
        bad_partitions=sum(summary.bad),
        max_partition=None if event.max_lag is None else _partition_of(event.max_lag),
        partitions=tuple(map(_partition_of, event.partitions)),
        body=stored.body.decode(),
        lag_seconds_kind=None if kind is None else cast("AgeName", kind.name.lower()),
        lag_seconds_topic=None if oldest is None else oldest.topic,
        lag_seconds_partition=None if oldest is None else oldest.partition,
    )


def event_of(line: EventLine) -> StoredEvent:
    """Make a line's event from its body. The event's log time is the time of receipt. Raises `MalformedLine`."""
    if line.body is None:
        raise MalformedLine("body: the line has none (KARROT_ARCHIVE_BODY was false)")
    try:
        event = parse_stored(line.body.encode(), observed_at_ms=line.observed_at_ms, source=line.source)
    except ValueError as error:
        raise MalformedLine(f"body: {error}") from error
    summary = summarize(event, line.received_at_ms, _age_of(line))
    return StoredEvent(line.log_id, line.seq, line.received_at_ms, summary, line.body.encode(), event)


def _age_of(line: EventLine) -> LagAge | None:
    seconds, kind = line.lag_seconds, line.lag_seconds_kind
    if seconds is None or kind is None or line.lag_seconds_topic is None or line.lag_seconds_partition is None:
        return None
    place = TopicPartition(line.lag_seconds_topic, line.lag_seconds_partition)
    return LagAge(seconds, AgeKind[kind.upper()], place)


def _partition_of(one: PartitionLag) -> PartitionLine:
    start, end = one.start, one.end
    return PartitionLine(
        topic=one.topic,
        partition=one.partition,
        status=one.status_text,
        owner=one.owner or None,
        client_id=one.client_id or None,
        start_offset=start.offset if start else None,
        start_ts_ms=one.committed_at_ms(start),
        start_lag=start.lag if start else None,
        end_offset=end.offset if end else None,
        end_ts_ms=one.committed_at_ms(end),
        end_lag=end.lag if end else None,
        current_lag=one.current_lag,
        complete=one.complete,
    )
