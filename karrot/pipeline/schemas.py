"""The columns of every table, and of the archive's lines: the contracts of the pipeline.

Every table is partitioned by ``day`` (UTC), which is in its path and not in its files; `with_day` adds it. Moments are
``timestamp`` in UTC, and where a source gave epoch milliseconds they stay beside it as ``…_ms``, because not every one
of them is a moment that a timestamp can hold. Lags, offsets and counts are messages. NULL is "not known", and never
a number.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = [
    "COMMITS",
    "CORRUPT",
    "DAY",
    "DERIVED",
    "ENDS",
    "EVENTS",
    "INCIDENTS",
    "LAG_MINUTE",
    "LINE",
    "MEMBERS",
    "OFFSETS",
    "OFFSETS_MINUTE",
    "PARTITIONS",
    "PARTITION_LAG_MINUTE",
    "PARTITION_LINE",
    "QUARANTINE",
    "RATES_MINUTE",
    "REBALANCES",
    "SKEW_MINUTE",
    "SLO_DAILY",
    "SORTED_BY",
    "STATUS_INTERVALS",
    "STREAMED",
    "TABLES",
    "VERDICT_RUNS",
    "columns_of",
    "with_day",
]

_STRING, _INT, _LONG, _DOUBLE, _TIME = StringType(), IntegerType(), LongType(), DoubleType(), TimestampType()
_BOOLEAN = BooleanType()


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


# ---- The archive's line, version 1 (karrot/eventline.py) ----

PARTITION_LINE: Final = _struct(
    topic=_STRING,
    partition=_INT,
    status=_STRING,
    owner=_STRING,
    client_id=_STRING,
    start_offset=_LONG,
    start_ts_ms=_LONG,
    start_lag=_DOUBLE,
    end_offset=_LONG,
    end_ts_ms=_LONG,
    end_lag=_DOUBLE,
    current_lag=_DOUBLE,
    complete=_DOUBLE,
)
"""A partition in a line.

Burrow's lags are unsigned 64 bits wide, which no type of Spark holds but a slow decimal. A double is exact up to 2^53,
and beyond it a lag is a slip of arithmetic.
"""

LINE: Final = _struct(
    v=_LONG,
    event_id=_STRING,
    log_id=_STRING,
    seq=_LONG,
    received_at_ms=_LONG,
    observed_at_ms=_LONG,
    source=_STRING,
    cluster=_STRING,
    consumer=_STRING,
    status=_STRING,
    kind=_STRING,
    incident_id=_STRING,
    incident_start_ms=_LONG,
    total_lag=_DOUBLE,
    max_lag=_DOUBLE,
    scalable_lag=_DOUBLE,
    lag_seconds=_DOUBLE,
    produce_rate=_DOUBLE,
    consume_rate=_DOUBLE,
    catch_up_seconds=_DOUBLE,
    complete=_DOUBLE,
    partition_count=_LONG,
    bad_partitions=_INT,
    max_partition=PARTITION_LINE,
    partitions=ArrayType(PARTITION_LINE),
    body=_STRING,
)

CORRUPT: Final = "_corrupt_record"
"""Where Spark's JSON parser leaves what it could not read."""

# ---- What ingest writes ----

EVENTS: Final = _struct(
    event_id=_STRING,
    log_id=_STRING,
    seq=_LONG,
    received_at=_TIME,
    received_at_ms=_LONG,
    observed_at=_TIME,
    observed_at_ms=_LONG,
    source=_STRING,
    cluster=_STRING,
    consumer=_STRING,
    status=_STRING,
    kind=_STRING,
    incident_id=_STRING,
    incident_start=_TIME,
    incident_start_ms=_LONG,
    total_lag=_LONG,
    max_lag=_LONG,
    max_lag_topic=_STRING,
    max_lag_partition=_INT,
    max_lag_owner=_STRING,
    scalable_lag=_LONG,
    lag_seconds=_DOUBLE,
    produce_rate=_DOUBLE,
    consume_rate=_DOUBLE,
    catch_up_seconds=_DOUBLE,
    complete=_DOUBLE,
    partition_count=_LONG,
    bad_partitions=_INT,
)
"""One row per event. The rates are those of the max-lag partition."""

PARTITIONS: Final = _struct(
    event_id=_STRING,
    log_id=_STRING,
    seq=_LONG,
    received_at=_TIME,
    observed_at=_TIME,
    source=_STRING,
    cluster=_STRING,
    consumer=_STRING,
    topic=_STRING,
    partition=_INT,
    status=_STRING,
    owner=_STRING,
    client_id=_STRING,
    start_offset=_LONG,
    start_ts=_TIME,
    start_ts_ms=_LONG,
    start_lag=_LONG,
    end_offset=_LONG,
    end_ts=_TIME,
    end_ts_ms=_LONG,
    end_lag=_LONG,
    current_lag=_LONG,
    complete=_DOUBLE,
)
"""One row per partition that an event lists: a webhook lists the bad ones, ``rest`` and ``kafka`` list all."""

QUARANTINE: Final = _struct(source=_STRING, reason=_STRING, raw=_STRING, position=_LONG, missing=_LONG)
"""One row per line that could not be read, and one per segment that came up short.

``source`` is the segment, ``raw`` the line in base64 (cut when it is huge), ``position`` its number in the segment from
1. ``missing`` counts the lines that a short segment's name promises and its content lacks. ``day`` is the day that the
segment was written on, since the line's own is not known.
"""

# ---- What offsets writes: Kafka's own record of what was committed ----

COMMITS: Final = _struct(
    cluster=_STRING,
    consumer=_STRING,
    topic=_STRING,
    partition=_INT,
    version=_INT,
    offset=_LONG,
    metadata=_STRING,
    leader_epoch=_INT,
    commit_ts=_TIME,
    commit_ts_ms=_LONG,
    expire_ts=_TIME,
    expire_ts_ms=_LONG,
    tombstone=_BOOLEAN,
    log_partition=_INT,
    log_offset=_LONG,
    log_ts=_TIME,
    log_ts_ms=_LONG,
)
"""One row per record of ``__consumer_offsets`` that commits an offset, or, as a tombstone, takes it back.

``log_…`` is where and when the record lies in that topic; ``day`` is that of ``log_ts``, which the broker gives, while
``commit_ts`` may be any. ``version`` is the value's.
"""

MEMBERS: Final = _struct(
    cluster=_STRING,
    consumer=_STRING,
    version=_INT,
    protocol_type=_STRING,
    generation=_INT,
    protocol=_STRING,
    leader=_STRING,
    member_id=_STRING,
    instance_id=_STRING,
    client_id=_STRING,
    client_host=_STRING,
    topic=_STRING,
    partition=_INT,
    log_partition=_INT,
    log_offset=_LONG,
    log_ts=_TIME,
    log_ts_ms=_LONG,
)
"""One row per member and assigned partition in a record of a group's metadata.

A member without a partition has one row without one; a group without members, or gone (``version`` is NULL), has one
row without a member.
"""

ENDS: Final = _struct(
    cluster=_STRING,
    topic=_STRING,
    partition=_INT,
    start_offset=_LONG,
    end_offset=_LONG,
    observed_at=_TIME,
    observed_at_ms=_LONG,
)
"""One row per look at where a partition's log starts and ends."""

# ---- What derive writes ----

LAG_MINUTE: Final = _struct(
    cluster=_STRING,
    consumer=_STRING,
    minute=_TIME,
    count=_LONG,
    lag_min=_LONG,
    lag_max=_LONG,
    lag_avg=_DOUBLE,
    lag_last=_LONG,
    lag_seconds_max=_DOUBLE,
    worst_status=_STRING,
    not_ok=_LONG,
    coverage=_DOUBLE,
    uncommitted=_LONG,
)
"""``count``, ``worst_status`` and ``not_ok`` are of events. So is the lag where ``coverage`` is NULL, else of commits.

Then ``coverage`` is the share of the group's partitions whose lag is known, ``uncommitted`` how many of them hold
messages and were never committed, or no longer are: their lag is not known.
"""

INCIDENTS: Final = _struct(
    incident_id=_STRING,
    cluster=_STRING,
    consumer=_STRING,
    started_at=_TIME,
    ended_at=_TIME,
    ended_by=_STRING,
    worst_status=_STRING,
    peak_lag=_LONG,
    events=_LONG,
    topics=ArrayType(_STRING),
)

VERDICT_RUNS: Final = _struct(
    cluster=_STRING,
    consumer=_STRING,
    run=_LONG,
    kind=_STRING,
    incident_id=_STRING,
    status=_STRING,
    first_at=_TIME,
    last_at=_TIME,
    events=_LONG,
    incident_start=_TIME,
    peak_lag=_LONG,
    topics=ArrayType(_STRING),
)
"""One row per run of equal verdicts of a group in a day, numbered from 1: incidents and intervals are made of them."""

STATUS_INTERVALS: Final = _struct(cluster=_STRING, consumer=_STRING, status=_STRING, from_at=_TIME, to_at=_TIME)

RATES_MINUTE: Final = _struct(
    cluster=_STRING,
    consumer=_STRING,
    topic=_STRING,
    partition=_INT,
    minute=_TIME,
    produced=_LONG,
    consumed=_LONG,
    produce_rate=_DOUBLE,
    consume_rate=_DOUBLE,
    catch_up_seconds=_DOUBLE,
    coverage=_DOUBLE,
)

SKEW_MINUTE: Final = _struct(
    cluster=_STRING,
    consumer=_STRING,
    topic=_STRING,
    minute=_TIME,
    max_share=_DOUBLE,
    gini=_DOUBLE,
    worst_partition=_INT,
    owner=_STRING,
    owner_share=_DOUBLE,
    cause=_STRING,
    coverage=_DOUBLE,
)
"""``cause`` is ``hot_partition`` or ``slow_owner`` where the other partitions of the worst one's owner tell which."""

SLO_DAILY: Final = _struct(
    cluster=_STRING,
    consumer=_STRING,
    minutes_seen=_LONG,
    minutes_ok=_LONG,
    minutes_measured=_LONG,
    minutes_within_target=_LONG,
    target_seconds=_DOUBLE,
    objective=_DOUBLE,
    budget_minutes=_DOUBLE,
    burn_rate=_DOUBLE,
    worst_partition=_STRING,
)
"""A minute is measured if a lag in time was known in it; ``budget_minutes`` of those may be beyond the target."""

OFFSETS_MINUTE: Final = _struct(
    cluster=_STRING,
    consumer=_STRING,
    topic=_STRING,
    partition=_INT,
    minute=_TIME,
    count=_LONG,
    offset_sum=_LONG,
    offset_first=_LONG,
    offset_last=_LONG,
)
"""Commits by minute; ``offset_sum`` is NULL where it would not fit."""

PARTITION_LAG_MINUTE: Final = _struct(
    cluster=_STRING,
    consumer=_STRING,
    topic=_STRING,
    partition=_INT,
    minute=_TIME,
    as_of=_TIME,
    committed_offset=_LONG,
    committed_at=_TIME,
    end_offset=_LONG,
    lag=_LONG,
    lag_seconds=_DOUBLE,
    method=_STRING,
    commits=_LONG,
    negative=_LONG,
    owner=_STRING,
)
"""Commits against log ends, ``as_of`` the newest commit of the minute or, without one, its newest look at the end.

``method`` says how ``lag_seconds`` is known: ``observed``, ``interpolated`` between two looks, or ``unknown``.
``negative`` is 1 where the commit lies beyond the log end that was known: its lag is taken as 0. Without a
``committed_offset`` it was taken back in this minute.
"""

REBALANCES: Final = _struct(
    cluster=_STRING,
    consumer=_STRING,
    generation=_INT,
    at=_TIME,
    members=_INT,
    protocol=_STRING,
    leader=_STRING,
    moved_partitions=_INT,
)
"""One row per change of a group's generation; ``moved_partitions`` is NULL where the one before is not known."""

STREAMED: Final[Mapping[str, StructType]] = MappingProxyType(
    {
        "events": EVENTS,
        "partitions": PARTITIONS,
        "quarantine": QUARANTINE,
        "commits": COMMITS,
        "members": MEMBERS,
        "ends": ENDS,
    }
)
"""The tables that ingest and offsets write batch by batch: they have ``batch_id=`` below ``day=``."""

DERIVED: Final[Mapping[str, StructType]] = MappingProxyType(
    {
        "lag_minute": LAG_MINUTE,
        "verdict_runs": VERDICT_RUNS,
        "incidents": INCIDENTS,
        "status_intervals": STATUS_INTERVALS,
        "rates_minute": RATES_MINUTE,
        "skew_minute": SKEW_MINUTE,
        "slo_daily": SLO_DAILY,
        "offsets_minute": OFFSETS_MINUTE,
        "partition_lag_minute": PARTITION_LAG_MINUTE,
        "rebalances": REBALANCES,
    }
)
"""The tables that are reckoned from those, whole days at a time: one file a day."""

TABLES: Final[Mapping[str, StructType]] = MappingProxyType({**STREAMED, **DERIVED})

OFFSETS: Final = frozenset({"commits", "members", "ends"})
"""The streamed tables that come from Kafka and not from events."""

SORTED_BY: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "lag_minute": ("cluster", "consumer", "minute"),
        "verdict_runs": ("cluster", "consumer", "run"),
        "incidents": ("started_at", "cluster", "consumer", "incident_id"),
        "status_intervals": ("cluster", "consumer", "from_at"),
        "rates_minute": ("cluster", "consumer", "topic", "partition", "minute"),
        "skew_minute": ("cluster", "consumer", "topic", "minute"),
        "slo_daily": ("cluster", "consumer"),
        "offsets_minute": ("cluster", "consumer", "topic", "partition", "minute"),
        "partition_lag_minute": ("cluster", "consumer", "topic", "partition", "minute"),
        "rebalances": ("cluster", "consumer", "at", "generation"),
    }
)
"""The order of the rows in a derived table's file: readers skip what they do not ask for."""

DAY: Final = StructField("day", DateType())


def columns_of(schema: StructType) -> list[str]:
    """The names of the columns, in order: the last ``select`` of a transform."""
    return list(schema.fieldNames())


def with_day(schema: StructType) -> StructType:
    """The schema as a reader sees it: the day comes from the path."""
    return StructType([*schema.fields, DAY])
