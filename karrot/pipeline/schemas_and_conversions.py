"""Defines the columns of every table and of the archive's lines, and conversions that the transforms share.

- Every table is partitioned by ``day`` (UTC). The day is in the path and not in the files; `with_day` adds it.
- Times are ``timestamp`` in UTC. If a source has epoch milliseconds, a column ``…_ms`` keeps them, because a
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
_TYPES: Final[Mapping[str, DataType]] = {
    **{kind.simpleString(): kind for kind in (STRING, INT, LONG, DOUBLE, TIME, BOOLEAN)},
    "array<string>": ArrayType(STRING),
}


def struct(**columns: DataType) -> StructType:
    """A row type with these columns, in this order. Each column can be NULL."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def _table(columns: str) -> StructType:
    """A row type from names and types, as SQL writes them. Spark's own parser (``fromDDL``) needs a session."""
    return struct(**{name: _TYPES[kind] for name, kind in (column.split() for column in columns.split(","))})


_GROUP: Final = "cluster string, consumer string"
_TOPIC_PARTITION: Final = "topic string, partition int"
_PARTITION_MINUTE: Final = f"{_GROUP}, {_TOPIC_PARTITION}, minute timestamp"
_RECORD: Final = "log_partition int, log_offset bigint, log_ts timestamp, log_ts_ms bigint"


# --- What ingest writes ---

EVENTS: Final = _table(
    f"""event_id string, log_id string, seq bigint, received_at timestamp, received_at_ms bigint,
    observed_at timestamp, observed_at_ms bigint, source string, {_GROUP}, status string,
    kind string, incident_id string, incident_start timestamp, incident_start_ms bigint,
    total_lag bigint, max_lag bigint, max_lag_topic string, max_lag_partition int, max_lag_owner string,
    max_lag_committed bigint, max_lag_first_end bigint, scalable_lag bigint, lag_seconds double,
    produce_rate double, consume_rate double, catch_up_seconds double, complete double,
    partition_count bigint, bad_partitions int,
    lag_seconds_kind string, lag_seconds_topic string, lag_seconds_partition int"""
)
"""One row per event. The rates are those of the partition with the largest lag.

``lag_seconds`` is the age of the oldest unread message, ``lag_seconds_kind`` how it is known, and the next two columns
name its partition. Events of ``evaluate`` have no kind: ``lag_seconds`` then belongs to the max-lag partition, and is
extrapolated if ``max_lag_committed`` is below ``max_lag_first_end``, the log end at the partition's oldest commit.
"""

PARTITIONS: Final = _table(
    f"""event_id string, log_id string, seq bigint, received_at timestamp, observed_at timestamp, source string,
    {_GROUP}, {_TOPIC_PARTITION}, status string, owner string, client_id string,
    start_offset bigint, start_ts timestamp, start_ts_ms bigint, start_lag bigint,
    end_offset bigint, end_ts timestamp, end_ts_ms bigint, end_lag bigint, current_lag bigint, complete double"""
)
"""One row per partition that an event lists: the bad ones (from a webhook), or all (from ``rest`` or ``kafka``)."""

QUARANTINE: Final = _table("source string, reason string, raw string, position bigint, missing bigint")
"""One row per unreadable line or record of ``__consumer_offsets``, and one per segment that is too short.

``source`` is the segment, or the partition of the topic. ``raw`` is the line, or the record's key and value, in base64.
``position`` is the line's number in the segment, counted from 1, or the record's offset. A short segment has fewer
lines than its name says; ``missing`` is the difference. ``day`` is the day on which the segment or record was written,
because the day of the line itself is unknown.
"""

RAW_BYTES: Final = 64 * 1024
"""``raw`` keeps at most this many bytes from the beginning of a line, a key or a value."""


# --- What offsets writes: Kafka's own records of commits, and log ends ---

COMMITS: Final = _table(
    f"""{_GROUP}, {_TOPIC_PARTITION}, version int, offset bigint, metadata string, leader_epoch int,
    commit_ts timestamp, commit_ts_ms bigint, expire_ts timestamp, expire_ts_ms bigint, tombstone boolean, {_RECORD}"""
)
"""One row per record of ``__consumer_offsets`` that commits an offset or, as a tombstone, deletes it.

The columns ``log_…`` are the record's place and time in that topic. ``day`` is the day of ``log_ts``, which the broker
sets. ``commit_ts`` can be any time. ``version`` is the version of the record's value.
"""

MEMBERS: Final = _table(
    f"""{_GROUP}, version int, protocol_type string, generation int, protocol string, leader string,
    member_id string, instance_id string, client_id string, client_host string, {_TOPIC_PARTITION}, {_RECORD}"""
)
"""One row per member and assigned partition in a record of a group's metadata.

A member without partitions has one row, without a partition. A group without members has one row, without a member. A
deleted group has one row, in which ``version`` is NULL.
"""

ENDS: Final = _table(
    f"""cluster string, {_TOPIC_PARTITION}, start_offset bigint, end_offset bigint,
    observed_at timestamp, observed_at_ms bigint"""
)
"""One row per log-end sample: one reading of a partition's log start and log end."""


# --- What derive writes: whole days at a time ---

LAG_MINUTE: Final = _table(
    f"""{_GROUP}, minute timestamp, count bigint,
    lag_min bigint, lag_max bigint, lag_avg double, lag_last bigint, lag_seconds_max double,
    worst_status string, not_ok bigint, coverage double, uncommitted bigint, complete double,
    lag_seconds_kind string"""
)
"""One row per group and minute. ``count``, ``worst_status`` and ``not_ok`` come from events.

In a row without ``coverage``, the lag comes from events. Otherwise the lag comes from commits, and ``coverage`` is the
share of the group's partitions whose lag is known. ``uncommitted`` is the number of partitions that hold messages but
have no committed offset. The lag of these partitions is unknown. If ``complete`` is below 1, the lag can leave out
partitions: it is ``coverage``, or the lowest ``complete`` of the events. ``lag_seconds_kind`` is the least exact kind
of the minute's lags in seconds.
"""

INCIDENTS: Final = _table(
    f"""incident_id string, {_GROUP}, started_at timestamp, ended_at timestamp, ended_by string,
    worst_status string, peak_lag bigint, events bigint, topics array<string>"""
)

VERDICT_RUNS: Final = _table(
    f"""{_GROUP}, run bigint, kind string, incident_id string, status string, first_at timestamp, last_at timestamp,
    events bigint, incident_start timestamp, peak_lag bigint, topics array<string>"""
)
"""One row per verdict run of a group. Incidents and intervals come from runs.

A run ends at the end of its piece. The numbers of a day's runs rise, and those of a later piece begin higher.
"""

STATUS_INTERVALS: Final = _table(f"{_GROUP}, status string, from_at timestamp, to_at timestamp")

RATES_MINUTE: Final = _table(
    f"""{_PARTITION_MINUTE}, produced bigint, consumed bigint,
    produce_rate double, consume_rate double, catch_up_seconds double, coverage double"""
)

SKEW_MINUTE: Final = _table(
    f"""{_GROUP}, topic string, minute timestamp, max_share double, gini double, worst_partition int,
    owner string, owner_share double, cause string, coverage double"""
)
"""``cause`` is ``hot_partition``, ``slow_owner`` or NULL. It depends on the owner's other partitions."""

SLO_DAILY: Final = _table(
    f"""{_GROUP}, minutes_seen bigint, minutes_ok bigint, minutes_measured bigint, minutes_within_target bigint,
    target_seconds double, objective double, budget_minutes double, burn_rate double, worst_partition string"""
)
"""At most ``budget_minutes`` of the measured minutes (with a known lag in seconds) may be beyond the target."""

OFFSETS_MINUTE: Final = _table(
    f"{_PARTITION_MINUTE}, count bigint, offset_sum bigint, offset_first bigint, offset_last bigint"
)
"""The commits of each minute. ``offset_sum`` is NULL if the sum does not fit into 64 bits."""

PARTITION_LAG_MINUTE: Final = _table(
    f"""{_PARTITION_MINUTE}, as_of timestamp, committed_offset bigint, committed_at timestamp, end_offset bigint,
    lag bigint, lag_seconds double, method string, commits bigint, negative bigint, owner string,
    start_offset bigint, state string"""
)
"""One row per partition and minute: the lag from commits and log ends.

``as_of`` is the time of the minute's newest commit or, without a commit, of its newest log-end sample. ``method`` says
how ``lag_seconds`` is known: ``observed``, ``interpolated`` between two samples, or ``unknown``. If the commit is
beyond the known log end, ``negative`` is 1. ``state`` is NULL, ``BEYOND_END``, ``LEFT`` or ``NEVER_COMMITTED``, as in
`karrot.event`, and a row with a state has no lag. If ``committed_offset`` is NULL without a state, the offset was
deleted in this minute.
"""

REBALANCES: Final = _table(
    f"""{_GROUP}, generation int, at timestamp, members int, protocol string, leader string,
    moved_partitions int"""
)
"""One row per new generation of a group. If the previous one is unknown, ``moved_partitions`` is NULL."""


# --- The archive's line, version 1, as ``karrot/event_json_line.py`` writes it ---

PARTITION_LINE: Final = _table(
    f"""{_TOPIC_PARTITION}, status string, owner string, client_id string,
    start_offset bigint, start_ts_ms bigint, start_lag double,
    end_offset bigint, end_ts_ms bigint, end_lag double, current_lag double, complete double"""
)
"""A partition in a line.

Burrow's lags are unsigned 64-bit numbers. Of Spark's types, only a decimal can hold them, and decimals are slow. So
lags are doubles, which are exact up to 2^53. A larger lag is an arithmetic error in Burrow.
"""

LINE: Final = StructType(
    [
        *_table(
            f"""v bigint, event_id string, log_id string, seq bigint, received_at_ms bigint, observed_at_ms bigint,
            source string, {_GROUP}, status string, kind string, incident_id string, incident_start_ms bigint,
            total_lag double, max_lag double, scalable_lag double, lag_seconds double, produce_rate double,
            consume_rate double, catch_up_seconds double, complete double, partition_count bigint,
            bad_partitions int"""
        ),
        StructField("max_partition", PARTITION_LINE),
        StructField("partitions", ArrayType(PARTITION_LINE)),
        *_table("body string, lag_seconds_kind string, lag_seconds_topic string, lag_seconds_partition int"),
    ]
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
"""The streamed tables: ``ingest`` and ``offsets`` write them batch by batch."""

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
"""The derived tables: ``derive`` makes them day by day, or piece by piece."""

PIECES: Final = frozenset({"lag_minute", "verdict_runs", "rates_minute", "skew_minute"})
"""The derived tables whose days can have four pieces of six hours: see `karrot.pipeline.derive.job`."""

PIECE_HOURS: Final = 6

TABLES: Final[Mapping[str, StructType]] = {**STREAMED, **DERIVED}

SUMMARIES: Final = "_summaries"
"""A table of ``derive`` alone: the state of each group at the end of a day, from which incidents go on."""

VERDICT_SUMMARIES: Final = StructType([*VERDICT_RUNS.fields, StructField("known_ids", ArrayType(STRING))])
"""The columns of ``verdict_runs``, and ``known_ids``: the ids of incidents that ended before the row."""

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
"""The columns that identify an event. The number comes first: a sort then rarely compares ``log_id``, a string."""

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


def possible_timestamp(epoch_ms: Column) -> Column:
    """The timestamp of epoch milliseconds; NULL for an impossible number (0, negative, or after the year 9999)."""
    return F.when((epoch_ms > 0) & (epoch_ms < _END_OF_TIME_MS), F.timestamp_millis(epoch_ms))


def is_possible(at: str) -> Column:
    """Whether a timestamp in a file is possible: from 1970 to a day after ``written_at``, and not NULL."""
    is_one = F.col(at).between(F.lit(EPOCH), F.col("written_at") + F.lit(_DAY))
    return F.coalesce(is_one, F.lit(False))


def piece_of(at: str) -> Column:
    """Return the piece of a day to which a timestamp belongs: the first hour of the piece."""
    hour = F.hour(at)
    return hour - hour % PIECE_HOURS


def whole(number: Column) -> Column:
    """Convert a count from a double; NULL from 2^53 on, where doubles are not exact and no real lag is so large."""
    return F.when(F.abs(number) < _EXACT, number.cast("bigint"))


def rounded(number: Column, digits: int) -> Column:
    """Round half up to some digits after the point. Spark's ``round`` is slow: it converts each number to a string."""
    scale = 10**digits
    nearest: Column = F.floor(number * scale + 0.5) / scale
    return nearest


def base64(data: Column) -> Column:
    """Encode bytes in base64, without the line breaks that Spark adds and other programs refuse."""
    return F.translate(F.base64(data), "\r\n", "")


def rows(values: Sequence[Mapping[str, Any]], schema: StructType) -> Column:
    """Make an expression for a few rows, with dates as strings. ``createDataFrame`` would start Python workers."""
    return F.inline(F.from_json(F.lit(json.dumps(values)), ArrayType(schema)))
