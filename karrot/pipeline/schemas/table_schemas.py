"""Declares the columns of every table, and the fields of the archive's line."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

STRING, INT, LONG, DOUBLE, TIME, BOOLEAN = (
    StringType(),
    IntegerType(),
    LongType(),
    DoubleType(),
    TimestampType(),
    BooleanType(),
)


def struct(**columns: DataType) -> StructType:
    """A row type: its columns in the order they are given, each of which may be NULL."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])


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
)
"""One row per event. The rates are those of the max-lag partition.

``max_lag_committed`` is its committed offset, ``max_lag_first_end`` the first log end that the verdict knows: below it
``lag_seconds`` is extrapolated.
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
"""One row per partition that an event lists: a webhook lists the bad ones, ``rest`` and ``kafka`` list all."""

QUARANTINE: Final = struct(source=STRING, reason=STRING, raw=STRING, position=LONG, missing=LONG)
"""One row per line or record of ``__consumer_offsets`` that could not be read, and one per segment that came up short.

``source`` is the segment or the topic's partition, ``raw`` the line, or key and value, in base64, and ``position`` the
line's number in the segment, from 1, or the offset. ``missing`` counts the lines that a short segment's name promises
and its content lacks. ``day`` is the day on which segment or record was written, since the line's own is not known.
"""

RAW_BYTES: Final = 64 * 1024
"""What is kept in ``raw`` of a line, of a key or of a value: so many bytes of its beginning."""


# --- What offsets writes: Kafka's own record of commits, and where its logs end ---

COMMITS: Final = struct(
    cluster=STRING,
    consumer=STRING,
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
    log_partition=INT,
    log_offset=LONG,
    log_ts=TIME,
    log_ts_ms=LONG,
)
"""One row per record of ``__consumer_offsets`` that commits an offset, or, as a tombstone, takes it back.

``log_…`` is where and when the record lies in that topic; ``day`` is that of ``log_ts``, which the broker gives, while
``commit_ts`` may be any. ``version`` is the value's.
"""

MEMBERS: Final = struct(
    cluster=STRING,
    consumer=STRING,
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
    log_partition=INT,
    log_offset=LONG,
    log_ts=TIME,
    log_ts_ms=LONG,
)
"""One row per member and assigned partition in a record of a group's metadata.

A member without a partition has one row without one; a group without members, or gone (``version`` is NULL), has one
row without a member.
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
"""One row per look at where a partition's log starts and ends."""


# --- What derive writes: whole days at a time ---

LAG_MINUTE: Final = struct(
    cluster=STRING,
    consumer=STRING,
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
"""``count``, ``worst_status`` and ``not_ok`` are of events. So is the lag where ``coverage`` is NULL, else of commits.

Then ``coverage`` is the share of the group's partitions whose lag is known, ``uncommitted`` how many of them hold
messages and were never committed, or no longer are: their lag is not known.
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
    cluster=STRING,
    consumer=STRING,
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
"""One row per run of equal verdicts of a group in a day, numbered from 1: incidents and intervals are made of them."""

STATUS_INTERVALS: Final = struct(cluster=STRING, consumer=STRING, status=STRING, from_at=TIME, to_at=TIME)

RATES_MINUTE: Final = struct(
    cluster=STRING,
    consumer=STRING,
    topic=STRING,
    partition=INT,
    minute=TIME,
    produced=LONG,
    consumed=LONG,
    produce_rate=DOUBLE,
    consume_rate=DOUBLE,
    catch_up_seconds=DOUBLE,
    coverage=DOUBLE,
)

SKEW_MINUTE: Final = struct(
    cluster=STRING,
    consumer=STRING,
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
"""``cause`` is ``hot_partition`` or ``slow_owner`` where the other partitions of the worst one's owner tell which."""

SLO_DAILY: Final = struct(
    cluster=STRING,
    consumer=STRING,
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
"""A minute is measured if a lag in time was known in it; ``budget_minutes`` of those may be beyond the target."""

OFFSETS_MINUTE: Final = struct(
    cluster=STRING,
    consumer=STRING,
    topic=STRING,
    partition=INT,
    minute=TIME,
    count=LONG,
    offset_sum=LONG,
    offset_first=LONG,
    offset_last=LONG,
)
"""Commits by minute; ``offset_sum`` is NULL where it would not fit."""

PARTITION_LAG_MINUTE: Final = struct(
    cluster=STRING,
    consumer=STRING,
    topic=STRING,
    partition=INT,
    minute=TIME,
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
"""Commits against log ends, ``as_of`` the newest commit of the minute or, without one, its newest look at the end.

``method`` says how ``lag_seconds`` is known: ``observed``, ``interpolated`` between two looks, or ``unknown``.
``negative`` is 1 where the commit lies beyond the log end that was known: its lag is taken as 0. Without a
``committed_offset`` it was taken back in this minute.
"""

REBALANCES: Final = struct(
    cluster=STRING,
    consumer=STRING,
    generation=INT,
    at=TIME,
    members=INT,
    protocol=STRING,
    leader=STRING,
    moved_partitions=INT,
)
"""One row per change of a group's generation; ``moved_partitions`` is NULL where the one before is not known."""


# --- The archive's line, version 1, as ``karrot/event_line.py`` writes it ---

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

Burrow's lags are unsigned 64 bits wide, which no type of Spark holds but a slow decimal. A double is exact up to 2^53,
and beyond it a lag is a slip of arithmetic.
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
)

CORRUPT: Final = "_corrupt_record"
"""Where Spark's JSON parser leaves what it could not read."""
