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
from typing import Any, Final, NamedTuple

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


def _fields(columns: str) -> StructType:
    """A row type from names and types, as SQL writes them. Spark's own parser (``fromDDL``) needs a session."""
    return struct(**{name: _TYPES[kind] for name, kind in (column.split() for column in columns.split(","))})


def _table(lines: str) -> StructType:
    """A row type from lines such as ``lag bigint | unread messages | messages | unknown``.

    The parts are the name and the type, what the column says, its unit, and what NULL means. A column without the last
    part is never NULL. A column's metadata has these parts, and all of them as one text, the ``comment``.
    """
    fields = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        column, what, unit, null = (part.strip() for part in f"{line}|||".split("|")[:4])
        more = ", ".join(filter(None, (unit, null and f"NULL: {null}")))
        texts = {"comment": f"{what} ({more})" if more else what, "what": what, "unit": unit, "null": null}
        name, kind = column.split()
        fields.append(StructField(name, _TYPES[kind], True, texts))
    return StructType(fields)


_GROUP: Final = """
    cluster string | Kafka cluster
    consumer string | consumer group
"""
_TOPIC_PARTITION: Final = """
    topic string | topic
    partition int | partition of the topic
"""
_PARTITION_MINUTE: Final = f"""{_GROUP}{_TOPIC_PARTITION}
    minute timestamp | beginning of the minute | UTC
"""
_EVENT: Final = """
    event_id string | id of the event: log_id, a hyphen and seq
    log_id string | id of the event log that stored the event
    seq bigint | number of the event in its log, ascending
"""
_RECORD: Final = """
    log_partition int | partition of __consumer_offsets that has the record
    log_offset bigint | offset of the record in this partition | offset
    log_ts timestamp | time of the record, which the broker sets | UTC
    log_ts_ms bigint | log_ts in milliseconds | ms since 1970
"""


# --- What ingest writes ---

EVENTS: Final = _table(
    f"""{_EVENT}
    received_at timestamp | when Karrot received the event | UTC
    received_at_ms bigint | received_at in milliseconds | ms since 1970
    observed_at timestamp | when the verdict was made: receipt, REST request or poll | UTC | impossible time
    observed_at_ms bigint | observed_at in milliseconds, as the event has it | ms since 1970
    source string | webhook, rest or kafka || unknown
    {_GROUP}
    status string | status of the group, as Burrow wrote it: OK, WARN, ERR or NOTFOUND
    kind string | observation, incident, close, deleted or unknown || unknown
    incident_id string | Burrow's id of the incident || no incident, or the source has no ids
    incident_start timestamp | start of the incident, according to Burrow | UTC | not given, or impossible time
    incident_start_ms bigint | incident_start in milliseconds, as the event has it | ms since 1970 | not given
    total_lag bigint | sum of the lags of all partitions | messages | unknown
    max_lag bigint | lag of the partition with the largest lag: the max-lag partition | messages | unknown
    max_lag_topic string | topic of the max-lag partition || unknown
    max_lag_partition int | number of the max-lag partition || unknown
    max_lag_owner string | host of the consumer that reads the max-lag partition || unknown
    max_lag_committed bigint | newest committed offset of the max-lag partition | offset | unknown
    max_lag_first_end bigint | log end of the max-lag partition at the oldest commit in the window | offset | unknown
    scalable_lag bigint | total_lag without the partitions in STOP, STALL or REWIND | messages | unknown
    lag_seconds double | age of the oldest unread message, as the service knew it | s | unknown
    produce_rate double | messages that were written to the max-lag partition | messages/s | unknown
    consume_rate double | messages that were committed on the max-lag partition | messages/s | unknown
    catch_up_seconds double | time until the lag of the max-lag partition is 0, at these rates | s | never, or unknown
    complete double | share of the partitions with a full window | 0 to 1 | unknown
    partition_count bigint | partitions of the group | partitions | unknown
    bad_partitions int | listed partitions in WARN, STOP, STALL or REWIND | partitions | unknown
    lag_seconds_kind string | exact, extrapolated or at_least || no lag_seconds, or it is that of the max-lag partition
    lag_seconds_topic string | topic of the partition of lag_seconds || lag_seconds_kind is NULL
    lag_seconds_partition int | number of the partition of lag_seconds || lag_seconds_kind is NULL"""
)

PARTITIONS: Final = _table(
    f"""{_EVENT}
    received_at timestamp | when Karrot received the event | UTC
    observed_at timestamp | when the verdict was made: receipt, REST request or poll | UTC | impossible time
    source string | webhook, rest or kafka || unknown
    {_GROUP}{_TOPIC_PARTITION}
    status string | OK, WARN, STOP, STALL, REWIND, or a state that Karrot adds, such as BEYOND_END || unknown
    owner string | host of the consumer that reads the partition || unknown
    client_id string | client id of this consumer || unknown
    start_offset bigint | offset of the oldest commit in the window | offset | unknown
    start_ts timestamp | time of the oldest commit | UTC | unknown, or impossible time
    start_ts_ms bigint | start_ts in milliseconds, as the source gave it | ms since 1970 | unknown
    start_lag bigint | lag at the oldest commit | messages | unknown
    end_offset bigint | offset of the newest commit | offset | unknown
    end_ts timestamp | time of the newest commit | UTC | unknown, or impossible time
    end_ts_ms bigint | end_ts in milliseconds, as the source gave it | ms since 1970 | unknown
    end_lag bigint | lag at the newest commit | messages | unknown
    current_lag bigint | lag at the time of the verdict | messages | unknown
    complete double | share of the partition's window that is filled | 0 to 1 | unknown"""
)

QUARANTINE: Final = _table(
    """
    source string | segment, or cluster/__consumer_offsets-partition, or the events topic's partition
    reason string | why it could not be used: one of the words in docs/tables.md
    raw string | first 64 KiB of the line, or of the record's key and value as JSON, in base64 || short segment
    position bigint | number of the line in the segment, from 1, or offset of the record || short segment, or no offset
    missing bigint | lines that a short segment lacks: it has fewer lines than its name says | lines | not short"""
)

RAW_BYTES: Final = 64 * 1024
"""``raw`` keeps at most this many bytes from the beginning of a line, a key or a value."""


# --- What offsets writes: Kafka's own records of commits, and log ends ---

COMMITS: Final = _table(
    f"""{_GROUP}{_TOPIC_PARTITION}
    version int | version of the record's value || tombstone
    offset bigint | committed offset | offset | tombstone
    metadata string | text that the consumer committed with the offset || none
    leader_epoch int | epoch of the partition's leader || not given
    commit_ts timestamp | time of the commit, which can be any time | UTC | tombstone, or impossible time
    commit_ts_ms bigint | commit_ts in milliseconds, as the record has it | ms since 1970 | tombstone
    expire_ts timestamp | when Kafka may delete the offset | UTC | not given, or impossible time
    expire_ts_ms bigint | expire_ts in milliseconds, as the record has it | ms since 1970 | not given
    tombstone boolean | whether the record deletes the offset
    {_RECORD}"""
)

MEMBERS: Final = _table(
    f"""{_GROUP}
    version int | version of the record's value || deleted group
    protocol_type string | consumer, or another kind of group, such as connect || none
    generation int | number of the group's generation || deleted group
    protocol string | assignment strategy || none
    leader string | member id of the group's leader || none
    member_id string | id of the member || group without members
    instance_id string | group.instance.id of the member || none
    client_id string | client id of the member || none
    client_host string | host of the member || none
    topic string | topic of an assigned partition || member without partitions
    partition int | number of an assigned partition || member without partitions
    {_RECORD}"""
)

ENDS: Final = _table(
    f"""
    cluster string | Kafka cluster
    {_TOPIC_PARTITION}
    start_offset bigint | log start: offset of the oldest message | offset | unknown
    end_offset bigint | log end: offset of the next message | offset
    observed_at timestamp | time of the sample | UTC
    observed_at_ms bigint | observed_at in milliseconds | ms since 1970"""
)


# --- What derive writes: whole days at a time ---

LAG_MINUTE: Final = _table(
    f"""{_GROUP}
    minute timestamp | beginning of the minute | UTC
    count bigint | events of the minute | events
    lag_min bigint | lowest known lag | messages | unknown
    lag_max bigint | highest known lag | messages | unknown
    lag_avg double | mean of the known lags | messages | unknown
    lag_last bigint | last known lag | messages | unknown
    lag_seconds_max double | largest age of the oldest unread message | s | unknown
    worst_status string | worst status of the events || no event with a known status
    not_ok bigint | events with a status worse than OK | events
    coverage double | share of the partitions with a known lag, if the lag comes from commits | 0 to 1 | lag from events
    uncommitted bigint | partitions with messages or an owner, but without a commit | partitions | lag from events
    complete double | below 1, the lag can leave out partitions: coverage, or the events' lowest | 0 to 1 | unknown
    lag_seconds_kind string | exact, extrapolated or at_least: the least exact of the minute || unknown"""
)

INCIDENTS: Final = _table(
    f"""
    incident_id string | Burrow's id || the incident's verdicts came from REST or Kafka, and had no id
    {_GROUP}
    started_at timestamp | start, according to Burrow, or else the first observation time | UTC
    ended_at timestamp | end | UTC | open
    ended_by string | close, new_incident, recovered, deleted or silence || open
    worst_status string | worst status of the events of kind incident || none
    peak_lag bigint | largest total lag of the events of kind incident | messages | unknown
    events bigint | events of the incident | events
    topics array<string> | topics with a bad partition"""
)

VERDICT_RUNS: Final = _table(
    f"""{_GROUP}
    run bigint | number of the run, ascending on the day
    kind string | kind of its events || unknown
    incident_id string | Burrow's id of the incident || no incident, or no id
    status string | status of its events
    first_at timestamp | first observation time | UTC
    last_at timestamp | last observation time | UTC
    events bigint | events of the run | events
    incident_start timestamp | start of the incident, according to Burrow | UTC | not given
    peak_lag bigint | largest total lag | messages | unknown
    topics array<string> | topics with a bad partition"""
)

STATUS_INTERVALS: Final = _table(
    f"""{_GROUP}
    status string | OK, WARN or ERR
    from_at timestamp | start | UTC
    to_at timestamp | end | UTC"""
)

RATES_MINUTE: Final = _table(
    f"""{_PARTITION_MINUTE}
    produced bigint | growth of the log end between samples in the minute | messages
    consumed bigint | growth of the committed offset between samples in the minute | messages
    produce_rate double | produced per second between samples | messages/s
    consume_rate double | consumed per second between samples | messages/s
    catch_up_seconds double | time until the lag is 0, at these rates | s | never
    coverage double | share of the minute that is between samples | 0 to 1"""
)

SKEW_MINUTE: Final = _table(
    f"""{_GROUP}
    topic string | topic
    minute timestamp | beginning of the minute | UTC
    max_share double | share of the worst partition in the lag of the topic | 0 to 1 | no lag
    gini double | Gini coefficient of the lags: 0 if all are equal | 0 to 1
    worst_partition int | partition with the largest lag || no lag
    owner string | owner of the worst partition || no lag, or unknown
    owner_share double | share of this owner in the lag of the topic | 0 to 1 | no lag, or no owner
    cause string | hot_partition, or slow_owner if the owner's other partitions lag too || neither
    coverage double | share of the partitions whose lag is known | 0 to 1"""
)

SLO_DAILY: Final = _table(
    f"""{_GROUP}
    minutes_seen bigint | minutes with a status | minutes
    minutes_ok bigint | minutes with the status OK | minutes
    minutes_measured bigint | minutes with a known lag in seconds | minutes
    minutes_within_target bigint | measured minutes with at most target_seconds | minutes
    target_seconds double | largest allowed lag in seconds (--max-lag-seconds) | s
    objective double | share of the minutes that must be within the target (--objective) | 0 to 1
    budget_minutes double | measured minutes that may be beyond the target | minutes
    burn_rate double | share of the measured minutes beyond the target, in budgets | 1 uses the budget up | not measured
    worst_partition string | topic/partition with the largest lag || no lag"""
)

PARTITION_LAG_MINUTE: Final = _table(
    f"""{_PARTITION_MINUTE}
    as_of timestamp | time of the row: of the minute's newest commit, or else of its newest log-end sample | UTC
    committed_offset bigint | newest committed offset | offset | no commit, or deleted in this minute
    committed_at timestamp | time of this commit | UTC | no commit, or deleted in this minute
    end_offset bigint | log end at as_of, on a line between two samples | offset | unknown
    lag bigint | end_offset minus the commit, or minus the log start if it is later | messages | unknown, or a state
    lag_seconds double | time since the log end was at the position from which lag counts | s | unknown, or a state
    method string | how lag_seconds is known: observed, interpolated (between two samples) or unknown
    commits bigint | commits of the minute, without tombstones | commits
    negative bigint | 1 if the commit is beyond the known log end, otherwise 0
    owner string | member that had the partition || none, or unknown
    start_offset bigint | log start | offset | unknown
    state string | BEYOND_END, LEFT or NEVER_COMMITTED, as in karrot watch || none of these
    offset_sum bigint | sum of the minute's committed offsets | offset | no commit, or does not fit into 64 bits
    offset_first bigint | first of them, in the order of the log | offset | no commit
    offset_last bigint | last of them, in the order of the log | offset | no commit"""
)

REBALANCES: Final = _table(
    f"""{_GROUP}
    generation int | number of the new generation
    at timestamp | time of the record | UTC
    members int | members of the group | members
    protocol string | assignment strategy || none
    leader string | member id of the group's leader || none
    moved_partitions int | partitions whose owner is another member | partitions | no record before"""
)


# --- The archive's line, version 1, as ``karrot/event_json_line.py`` writes it ---

PARTITION_LINE: Final = _fields(
    """topic string, partition int, status string, owner string, client_id string,
    start_offset bigint, start_ts_ms bigint, start_lag double,
    end_offset bigint, end_ts_ms bigint, end_lag double, current_lag double, complete double"""
)
"""A partition in a line.

Burrow's lags are unsigned 64-bit numbers. Of Spark's types, only a decimal can hold them, and decimals are slow. So
lags are doubles, which are exact up to 2^53. A larger lag is an arithmetic error in Burrow.
"""

LINE: Final = StructType(
    [
        *_fields(
            """v bigint, event_id string, log_id string, seq bigint, received_at_ms bigint, observed_at_ms bigint,
            source string, cluster string, consumer string, status string, kind string,
            incident_id string, incident_start_ms bigint,
            total_lag double, max_lag double, scalable_lag double, lag_seconds double, produce_rate double,
            consume_rate double, catch_up_seconds double, complete double, partition_count bigint,
            bad_partitions int"""
        ),
        StructField("max_partition", PARTITION_LINE),
        StructField("partitions", ArrayType(PARTITION_LINE)),
        *_fields("body string, lag_seconds_kind string, lag_seconds_topic string, lag_seconds_partition int"),
    ]
)

CORRUPT: Final = "_corrupt_record"
"""The column in which Spark's JSON parser puts a line that it could not read."""


# --- Columns that identify things ---

EVENT: Final = ("seq", "log_id")
"""The columns that identify an event. The number comes first: a sort then rarely compares ``log_id``, a string."""

GROUP: Final = ("cluster", "consumer")
"""The columns that identify a consumer group."""

PARTITION: Final = (*GROUP, "topic", "partition")
"""The columns that identify a partition of a group."""

LOG: Final = ("cluster", "topic", "partition")
"""The columns that identify a partition of a topic."""

RECORD: Final = ("cluster", "log_partition", "log_offset")
"""The columns that identify a record of ``__consumer_offsets``."""


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
    "partition_lag_minute": PARTITION_LAG_MINUTE,
    "rebalances": REBALANCES,
}
"""The derived tables: ``derive`` makes them day by day, or piece by piece."""

PIECES: Final = frozenset({"lag_minute", "verdict_runs", "rates_minute", "skew_minute", "partition_lag_minute"})
"""The derived tables whose days can have four pieces of six hours: see `karrot.pipeline.derive.job`."""

PIECE_HOURS: Final = 6

TABLES: Final[Mapping[str, StructType]] = {**STREAMED, **DERIVED}

SUMMARIES: Final = "_summaries"
"""A table of ``derive`` alone: the state of each group at the end of a day, from which incidents go on."""

VERDICT_SUMMARIES: Final = StructType(
    [*VERDICT_RUNS, *_table("known_ids array<string> | ids of incidents that ended before the row")]
)

OFFSETS: Final = frozenset({"commits", "members", "ends"})
"""The streamed tables whose rows come from Kafka's offsets and not from events."""


class About(NamedTuple):
    """What a row of a table is, where its day comes from, and the columns that identify a row and sort a day's file."""

    row: str
    day: str
    key: Sequence[str]
    sort: Sequence[str] = ()

    @property
    def sorted_by(self) -> Sequence[str]:
        """The columns by which ``derive`` and ``compact`` sort the rows of a file, so that readers can skip rows."""
        return self.sort or self.key

    def __str__(self) -> str:
        return f"One row per {self.row}. Key: {', '.join(self.key) or 'none'}. Sorted by {', '.join(self.sorted_by)}."


ABOUT: Final[Mapping[str, About]] = {
    "events": About("event", "received_at", EVENT, (*GROUP, "received_at")),
    "partitions": About("listed partition", "received_at", (*EVENT, "topic", "partition"), (*GROUP, "received_at")),
    "quarantine": About("line, segment or record that cannot be used", "its writing", (), ("source", "position")),
    "commits": About("record that commits or deletes an offset", "log_ts", RECORD, (*PARTITION, "log_offset")),
    "members": About("member and its partition", "log_ts", (*RECORD, "member_id", *LOG[1:]), (*GROUP, "log_offset")),
    "ends": About("log-end sample of a partition", "observed_at", (*LOG, "observed_at_ms"), (*LOG, "observed_at")),
    "lag_minute": About("group and minute", "minute", (*GROUP, "minute")),
    "verdict_runs": About("run of equal verdicts on a group", "its receipt", (*GROUP, "day", "run"), (*GROUP, "run")),
    "incidents": About("incident", "started_at", ("started_at", *GROUP, "incident_id")),
    "status_intervals": About("time with one status of a group", "from_at", (*GROUP, "from_at")),
    "rates_minute": About("partition of a group and minute", "minute", (*PARTITION, "minute")),
    "skew_minute": About("topic of a group and minute", "minute", (*GROUP, "topic", "minute")),
    "slo_daily": About("group and day", "its minutes", (*GROUP, "day"), GROUP),
    "partition_lag_minute": About("partition of a group and minute", "minute", (*PARTITION, "minute")),
    "rebalances": About("new generation of a group", "at", (*GROUP, "at", "generation")),
    SUMMARIES: About("group", "its newest run", (*GROUP, "day"), GROUP),
}

UNIQUE_BY: Final = {name: [*about.key] for name, about in ABOUT.items() if about.key}
"""The columns that identify a row of a table."""


def columns_of(schema: StructType) -> list[str]:
    """The names of the columns, in order, for the last ``select`` of a transform."""
    return list(schema.fieldNames())


def with_day(schema: StructType) -> StructType:
    """Add the column ``day``, and drop the descriptions, which Spark would copy into each file."""
    return struct(**{column.name: column.dataType for column in schema}, day=DateType())


def with_comments(schema: StructType, about: About) -> StructType:
    """Add the column ``day``. The only metadata is the ``comment``, which readers of Delta tables show."""
    comments = {column.name: column.metadata["comment"] for column in schema} | {"day": f"day of {about.day} (UTC)"}
    columns = with_day(schema)
    return StructType([StructField(one.name, one.dataType, True, {"comment": comments[one.name]}) for one in columns])


# --- Conversions that the transforms share ---

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
