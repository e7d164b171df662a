"""Makes lag events, one by one with given fields or at random for property tests."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from karrot.event import FirstUnread, LagEvent, OffsetSample, PartitionLag, Source

_UINT64 = st.integers(0, 2**64 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_TIMESTAMP = _INT64 | st.integers(7_800_000_000_000_000_000, 8_200_000_000_000_000_000)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
_GROUP_STATUS = st.sampled_from(["OK", "WARN", "ERR", "NOTFOUND"]) | _TEXT
_PARTITION_STATUS = st.sampled_from(["OK", "WARN", "STOP", "STALL", "REWIND"]) | _TEXT
_COMPLETE = st.none() | st.floats(0, 1) | st.floats(allow_nan=False, allow_infinity=False)


def make_partition(**overrides: Any) -> PartitionLag:
    """Make a partition that falls behind."""
    fields: dict[str, Any] = {
        "topic": "orders.v1",
        "partition": 1,
        "status_text": "WARN",
        "current_lag": 10_440,
        "start": OffsetSample(501_000, 1_746_950_250_000, lag=1_200, observed_at_ms=1_746_950_251_000),
        "end": OffsetSample(508_100, 1_746_950_399_000, lag=9_800, observed_at_ms=1_746_950_400_000),
        "owner": "/10.20.30.40",
        "client_id": "consumer-orders-1",
        "complete": 1.0,
    }
    return PartitionLag(**(fields | overrides))


def make_event(**overrides: Any) -> LagEvent:
    """Make a WARN verdict within an incident."""
    fields: dict[str, Any] = {
        "cluster": "prod-eu",
        "consumer": "orders-svc",
        "status_text": "WARN",
        "total_lag": 11_020,
        "observed_at_ms": 1_746_950_405_000,
        "source": Source.WEBHOOK,
        "incident_id": "8d5c0c9e-52a1-4d67-9a54-0f6a2b6f3c11",
        "incident_start": datetime(2025, 5, 11, 7, 58, 12, 304_981, tzinfo=UTC),
        "complete": 1.0,
        "partition_count": 12,
        "max_lag": make_partition(),
        "partitions": (make_partition(),),
        "extras": (("key1", "value1"),),
    }
    return LagEvent(**(fields | overrides))


def _commits() -> st.SearchStrategy[OffsetSample]:
    return st.builds(
        OffsetSample,
        offset=_INT64,
        timestamp_ms=_TIMESTAMP,
        lag=st.none() | _UINT64,
        observed_at_ms=st.none() | _TIMESTAMP,
        log_end=st.none() | _INT64,
    )


def _partitions() -> st.SearchStrategy[PartitionLag]:
    return st.builds(
        PartitionLag,
        topic=_TEXT,
        partition=st.integers(-(2**31), 2**31 - 1),
        status_text=_PARTITION_STATUS,
        current_lag=st.none() | _UINT64,
        start=st.none() | _commits(),
        end=st.none() | _commits(),
        owner=_TEXT,
        client_id=_TEXT,
        complete=_COMPLETE,
        log_end=st.none() | _INT64,
        log_start=st.none() | _INT64,
        first_unread=st.none() | st.builds(FirstUnread, _INT64, st.none() | _INT64),
        moved_at_ms=st.none() | _TIMESTAMP,
    )


def event_strategy() -> st.SearchStrategy[LagEvent]:
    """Draw any event that a body can hold: the full range of every number, any text, missing values."""
    return st.builds(
        LagEvent,
        cluster=_TEXT,
        consumer=_TEXT,
        status_text=_GROUP_STATUS,
        total_lag=st.none() | _UINT64,
        observed_at_ms=st.integers(0, 2**53),
        source=st.sampled_from(Source),
        incident_id=st.none() | st.uuids(version=4).map(str) | _TEXT.filter(bool),
        incident_start=st.none() | st.datetimes(min_value=datetime(2, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 (hypothesis wants it naive)
        complete=_COMPLETE,
        partition_count=st.none() | st.integers(0, 2**63 - 1),
        max_lag=st.none() | _partitions(),
        partitions=st.lists(_partitions(), max_size=3).map(tuple),
        extras=st.dictionaries(_TEXT, _TEXT, max_size=3).map(lambda extras: tuple(extras.items())),
    )
