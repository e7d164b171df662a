"""Defines the columns of every table and of the archive's lines, and conversions that the transforms share.

- Every table is partitioned by ``day`` (UTC). The day is in the path and not in the files; `with_day` adds it.
- Moments are ``timestamp`` in UTC. If a source has epoch milliseconds, a column ``…_ms`` keeps them, because a
  timestamp cannot hold every such number.
- Lags, offsets and counts are in messages.
- NULL means "unknown". No number has this meaning.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
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

from karrot.text import EPOCH

STRING, INT, LONG, DOUBLE = StringType(), IntegerType(), LongType(), DoubleType()
TIME, BOOLEAN, BINARY = TimestampType(), BooleanType(), BinaryType()


def struct(**columns: DataType) -> StructType:
    """A row type with these columns, in this order. Each column can be NULL."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])


_GROUP: Final = {"cluster": STRING, "consumer": STRING}
_PARTITION_MINUTE: Final = {**_GROUP, "topic": STRING, "partition": INT, "minute": TIME}
_RECORD: Final = {"log_partition": INT, "log_offset": LONG, "log_ts": TIME, "log_ts_ms": LONG}
RECORD_COLUMNS: Final = tuple(_RECORD)


# --- What ingest writes ---

EVENTS: Final = struct(
    event_id=STRING,
    log_id=STRING,
    seq=LONG,
    received_at=TIME,
    received_at_ms=LONG,
    observed_at=TIME,
    observed_at_ms=LONG,
    source=STRING,
    cluster=STRING,
    consumer=STRING,
    status=STRING,
    kind=STRING,
    incident_id=STRING,
    incident_start=TIME,
    incident_start_ms=LONG,
    total_lag=LONG,
    max_lag=LONG,
    max_lag_topic=STRING,
    max_lag_partition=INT,
    max_lag_owner=STRING,
    max_lag_committed=LONG,
    max_lag_first_end=LONG,
    scalable_lag=LONG,
    lag_seconds=DOUBLE,
    produce_rate=DOUBLE,
    consume_rate=DOUBLE,
    catch_up_seconds=DOUBLE,
    complete=DOUBLE,
    partition_count=LONG,
    bad_partitions=INT,
    lag_seconds_kind=STRING,
    lag_seconds_topic=STRING,
    lag_seconds_partition=INT,
)
"""One row per event. The rates are those of the partition with the largest lag.

``lag_seconds`` is the age of the oldest unread message, ``lag_seconds_kind`` how it is known, and the next two columns
name its partition. Events of ``evaluate`` have no kind: ``lag_seconds`` then belongs to the max-lag partition, and is
extrapolated if ``max_lag_committed`` is below ``max_lag_first_end``, the log end at the partition's oldest commit.
"""

PARTITIONS: Final = struct(
    event_id=STRING,
    log_id=STRING,
    seq=LONG,
    received_at=TIME,
    observed_at=TIME,
    source=STRING,
    cluster=STRING,
    consumer=STRING,
    topic=STRING,
    partition=INT,
    status=STRING,
    owner=STRING,
    client_id=STRING,
    start_offset=LONG,
    start_ts=TIME,
    start_ts_ms=LONG,
    start_lag=LONG,
    end_offset=LONG,
    end_ts=TIME,
    end_ts_ms=LONG,
    end_lag=LONG,
    current_lag=LONG,
    complete=DOUBLE,
)
"""One row per partition that an event lists: the bad ones (from a webhook), or all (from ``rest`` or ``kafka``)."""

QUARANTINE: Final = struct(source=STRING, reason=STRING, raw=STRING, position=LONG, missing=LONG)
"""One row per unreadable line or record of ``__consumer_offsets``, and one per segment that is too short.

``source`` is the segment, or the partition of the topic. ``raw`` is the line, or the record's key and value, in base64.
``position`` is the line's number in the segment, counted from 1, or the record's offset. A short segment has fewer
lines than its name says; ``missing`` is the difference. ``day`` is the day on which the segment or record was written,
because the day of the line itself is unknown.
"""

RAW_BYTES: Final = 64 * 1024
"""``raw`` keeps at most this many bytes from the beginning of a line, a key or a value."""


# --- What offsets writes: Kafka's own records of commits, and log ends ---

COMMITS: Final = struct(
    **_GROUP,
    topic=STRING,
    partition=INT,
    version=INT,
    offset=LONG,
    metadata=STRING,
    leader_epoch=INT,
    commit_ts=TIME,
    commit_ts_ms=LONG,
    expire_ts=TIME,
    expire_ts_ms=LONG,
    tombstone=BOOLEAN,
    **_RECORD,
)
"""One row per record of ``__consumer_offsets`` that commits an offset or, as a tombstone, deletes it.

The columns ``log_…`` are the record's place and time in that topic. ``day`` is the day of ``log_ts``, which the broker
sets. ``commit_ts`` can be any time. ``version`` is the version of the record's value.
"""

MEMBERS: Final = struct(
    **_GROUP,
    version=INT,
    protocol_type=STRING,
    generation=INT,
    protocol=STRING,
    leader=STRING,
    member_id=STRING,
    instance_id=STRING,
    client_id=STRING,
    client_host=STRING,
    topic=STRING,
    partition=INT,
    **_RECORD,
)
"""One row per member and assigned partition in a record of a group's metadata.

A member without partitions has one row, without a partition. A group without members has one row, without a member. A
deleted group has one row, in which ``version`` is NULL.
"""

ENDS: Final = struct(
    cluster=STRING,
    topic=STRING,
    partition=INT,
    start_offset=LONG,
    end_offset=LONG,
    observed_at=TIME,
    observed_at_ms=LONG,
)
"""One row per log-end sample: one reading of a partition's log start and log end."""


# --- What derive writes: whole days at a time ---

LAG_MINUTE: Final = struct(
    **_GROUP,
    minute=TIME,
    count=LONG,
    lag_min=LONG,
    lag_max=LONG,
    lag_avg=DOUBLE,
    lag_last=LONG,
    lag_seconds_max=DOUBLE,
    worst_status=STRING,
    not_ok=LONG,
    coverage=DOUBLE,
    uncommitted=LONG,
)
"""One row per group and minute. ``count``, ``worst_status`` and ``not_ok`` come from events.

If ``coverage`` is NULL, the lag comes from events too. Otherwise the lag comes from commits, and ``coverage`` is the
share of the group's partitions whose lag is known. ``uncommitted`` is the number of partitions that hold messages but
have no committed offset. The lag of these partitions is unknown.
"""

INCIDENTS: Final = struct(
    incident_id=STRING,
    cluster=STRING,
    consumer=STRING,
    started_at=TIME,
    ended_at=TIME,
    ended_by=STRING,
    worst_status=STRING,
    peak_lag=LONG,
    events=LONG,
    topics=ArrayType(STRING),
)

VERDICT_RUNS: Final = struct(
    **_GROUP,
    run=LONG,
    kind=STRING,
    incident_id=STRING,
    status=STRING,
    first_at=TIME,
    last_at=TIME,
    events=LONG,
    incident_start=TIME,
    peak_lag=LONG,
    topics=ArrayType(STRING),
)
"""One row per verdict run of a group. Incidents and intervals come from runs.

Runs are numbered from 1 each day. In the later parts of a large day, the numbers begin higher.
"""

STATUS_INTERVALS: Final = struct(**_GROUP, status=STRING, from_at=TIME, to_at=TIME)

RATES_MINUTE: Final = struct(
    **_PARTITION_MINUTE,
    produced=LONG,
    consumed=LONG,
    produce_rate=DOUBLE,
    consume_rate=DOUBLE,
    catch_up_seconds=DOUBLE,
    coverage=DOUBLE,
)

SKEW_MINUTE: Final = struct(
    **_GROUP,
    topic=STRING,
    minute=TIME,
    max_share=DOUBLE,
    gini=DOUBLE,
    worst_partition=INT,
    owner=STRING,
    owner_share=DOUBLE,
    cause=STRING,
    coverage=DOUBLE,
)
"""``cause`` is ``hot_partition``, ``slow_owner`` or NULL. It depends on the owner's other partitions."""

SLO_DAILY: Final = struct(
    **_GROUP,
    minutes_seen=LONG,
    minutes_ok=LONG,
    minutes_measured=LONG,
    minutes_within_target=LONG,
    target_seconds=DOUBLE,
    objective=DOUBLE,
    budget_minutes=DOUBLE,
    burn_rate=DOUBLE,
    worst_partition=STRING,
)
"""At most ``budget_minutes`` of the measured minutes (with a known lag in seconds) may be beyond the target."""

OFFSETS_MINUTE: Final = struct(**_PARTITION_MINUTE, count=LONG, offset_sum=LONG, offset_first=LONG, offset_last=LONG)
"""The commits of each minute. ``offset_sum`` is NULL if the sum does not fit into 64 bits."""

PARTITION_LAG_MINUTE: Final = struct(
    **_PARTITION_MINUTE,
    as_of=TIME,
    committed_offset=LONG,
    committed_at=TIME,
    end_offset=LONG,
    lag=LONG,
    lag_seconds=DOUBLE,
    method=STRING,
    commits=LONG,
    negative=LONG,
    owner=STRING,
)
"""One row per partition and minute: the lag from commits and log ends.

``as_of`` is the time of the minute's newest commit or, without a commit, of its newest log-end sample. ``method`` says
how ``lag_seconds`` is known: ``observed``, ``interpolated`` between two samples, or ``unknown``. If the commit is
beyond the known log end, ``negative`` is 1 and the lag is 0. If ``committed_offset`` is NULL, the offset was deleted in
this minute.
"""

REBALANCES: Final = struct(
    **_GROUP, generation=INT, at=TIME, members=INT, protocol=STRING, leader=STRING, moved_partitions=INT
)
"""One row per new generation of a group. If the previous one is unknown, ``moved_partitions`` is NULL."""


# --- The archive's line, version 1, as ``karrot/event_json_line.py`` writes it ---

PARTITION_LINE: Final = struct(
    topic=STRING,
    partition=INT,
    status=STRING,
    owner=STRING,
    client_id=STRING,
    start_offset=LONG,
    start_ts_ms=LONG,
    start_lag=DOUBLE,
    end_offset=LONG,
    end_ts_ms=LONG,
    end_lag=DOUBLE,
    current_lag=DOUBLE,
    complete=DOUBLE,
)
"""A partition in a line.

Burrow's lags are unsigned 64-bit numbers. Of Spark's types, only a decimal can hold them, and decimals are slow. So
lags are doubles, which are exact up to 2^53. A larger lag is an arithmetic error in Burrow.
"""

LINE: Final = struct(
    v=LONG,
    event_id=STRING,
    log_id=STRING,
    seq=LONG,
    received_at_ms=LONG,
    observed_at_ms=LONG,
    source=STRING,
    cluster=STRING,
    consumer=STRING,
    status=STRING,
    kind=STRING,
    incident_id=STRING,
    incident_start_ms=LONG,
    total_lag=DOUBLE,
    max_lag=DOUBLE,
    scalable_lag=DOUBLE,
    lag_seconds=DOUBLE,
    produce_rate=DOUBLE,
    consume_rate=DOUBLE,
    catch_up_seconds=DOUBLE,
    complete=DOUBLE,
    partition_count=LONG,
    bad_partitions=INT,
    max_partition=PARTITION_LINE,
    partitions=ArrayType(PARTITION_LINE),
    body=STRING,
    lag_seconds_kind=STRING,
    lag_seconds_topic=STRING,
    lag_seconds_partition=INT,
)

CORRUPT: Final = "_corrupt_record"
"""The column in which Spark's JSON parser puts a line that it could not read."""


# --- All tables ---

STREAMED: Final[Mapping[str, StructType]] = {
    "events": EVENTS,
    "partitions": PARTITIONS,
    "quarantine": QUARANTINE,
    "commits": COMMITS,
    "members": MEMBERS,
    "ends": ENDS,
}
"""The streamed tables: ``ingest`` and ``offsets`` write them batch by batch, below ``day=…/batch_id=…``."""

DERIVED: Final[Mapping[str, StructType]] = {
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
"""The derived tables: ``derive`` makes them day by day. A day has one file, and a large day has several."""

TABLES: Final[Mapping[str, StructType]] = {**STREAMED, **DERIVED}

OFFSETS: Final = frozenset({"commits", "members", "ends"})
"""The streamed tables whose rows come from Kafka's offsets and not from events."""

SORTED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "events": ("cluster", "consumer", "received_at"),
    "partitions": ("cluster", "consumer", "received_at"),
    "quarantine": ("source", "position"),
    "commits": ("cluster", "consumer", "topic", "partition", "log_offset"),
    "members": ("cluster", "consumer", "log_offset"),
    "ends": ("cluster", "topic", "partition", "observed_at"),
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
"""The columns by which ``derive`` and ``compact`` sort the rows of a day's file, so that readers can skip rows."""

UNIQUE_BY: Final[Mapping[str, list[str]]] = {
    "events": ["log_id", "seq"],
    "partitions": ["log_id", "seq", "topic", "partition"],
    "commits": ["cluster", "log_partition", "log_offset"],
    "members": ["cluster", "log_partition", "log_offset", "member_id", "topic", "partition"],
    "ends": ["cluster", "topic", "partition", "observed_at_ms"],
}
"""The columns that identify a row of a streamed table."""

_DAY_FIELD: Final = StructField("day", DateType())


def columns_of(schema: StructType) -> list[str]:
    """The names of the columns, in order, for the last ``select`` of a transform."""
    return list(schema.fieldNames())


def with_day(schema: StructType) -> StructType:
    return StructType([*schema.fields, _DAY_FIELD])


# --- Columns and conversions that the transforms share ---

EVENT: Final = ("seq", "log_id")
"""The columns that identify an event. The number comes first: a sort then rarely compares ``log_id``, a text."""

GROUP: Final = ("cluster", "consumer")
"""The columns that identify a consumer group."""

PARTITION: Final = (*GROUP, "topic", "partition")
"""The columns that identify a partition of a group."""

LOG: Final = ("cluster", "topic", "partition")
"""The columns that identify a partition of a topic."""

_END_OF_TIME_MS: Final = (
    253_402_300_800_000  # the year 10000; Burrow misreads the times of some commits of Kafka 4.1 as about 8e18
)
_DAY: Final = timedelta(days=1)
_EXACT: Final = float(2**53)


def moment(epoch_ms: Column) -> Column:
    """The timestamp of epoch milliseconds; NULL for an impossible number (0, negative, or after the year 9999)."""
    return F.when((epoch_ms > 0) & (epoch_ms < _END_OF_TIME_MS), F.timestamp_millis(epoch_ms))


def is_possible(at: str) -> Column:
    """Whether a timestamp in a file is possible: from 1970 to a day after ``written_at``, and not NULL."""
    is_one = F.col(at).between(F.lit(EPOCH), F.col("written_at") + F.lit(_DAY))
    return F.coalesce(is_one, F.lit(False))


def whole(number: Column) -> Column:
    """Convert a count from a double; NULL from 2^53 on, where doubles are not exact and no real lag is so large."""
    return F.when(F.abs(number) < _EXACT, number.cast("bigint"))


def rounded(number: Column, digits: int) -> Column:
    """Round half up to some digits after the point. Spark's ``round`` is slow: it converts each number to text."""
    scale = 10**digits
    nearest: Column = F.floor(number * scale + 0.5) / scale
    return nearest


def base64(data: Column) -> Column:
    """Encode bytes in base64, without the line breaks that Spark adds and other programs refuse."""
    return F.translate(F.base64(data), "\r\n", "")


def rows(values: Sequence[Mapping[str, Any]], schema: StructType) -> Column:
    """Make a few rows in an expression, with dates as texts. ``createDataFrame`` would start Python workers."""
    return F.inline(F.from_json(F.lit(json.dumps(values)), ArrayType(schema)))
