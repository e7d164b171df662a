"""What derive writes: reckoned from the others, whole days at a time."""

from typing import Final

from pyspark.sql.types import ArrayType

from karrot.pipeline.schemas.column_types import DOUBLE, INT, LONG, STRING, TIME, struct

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
