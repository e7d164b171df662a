"""Defines the columns of every table and of the archive's lines: the contracts of the pipeline.

Every table is partitioned by ``day`` (UTC), which is in its path and not in its files; `with_day` adds it. Moments are
``timestamp`` in UTC. Where a source gave epoch milliseconds they stay in a column ``…_ms``, because not every one of
them is a moment that a timestamp can hold. Lags, offsets and counts are messages. NULL is "not known", and never a
number.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyspark.sql.types import DateType, StructField, StructType

from karrot.pipeline.schemas.table_schemas import (
    COMMITS,
    CORRUPT,
    ENDS,
    EVENTS,
    INCIDENTS,
    LAG_MINUTE,
    LINE,
    MEMBERS,
    OFFSETS_MINUTE,
    PARTITION_LAG_MINUTE,
    PARTITION_LINE,
    PARTITIONS,
    QUARANTINE,
    RATES_MINUTE,
    RAW_BYTES,
    REBALANCES,
    SKEW_MINUTE,
    SLO_DAILY,
    STATUS_INTERVALS,
    VERDICT_RUNS,
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
    "RAW_BYTES",
    "REBALANCES",
    "SKEW_MINUTE",
    "SLO_DAILY",
    "SORTED_BY",
    "STATUS_INTERVALS",
    "STREAMED",
    "TABLES",
    "UNIQUE_BY",
    "VERDICT_RUNS",
    "columns_of",
    "with_day",
]

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
"""The tables that are derived from those, whole days at a time: one file a day."""

TABLES: Final[Mapping[str, StructType]] = MappingProxyType({**STREAMED, **DERIVED})

OFFSETS: Final = frozenset({"commits", "members", "ends"})
"""The streamed tables that come from Kafka and not from events."""

SORTED_BY: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
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
)
"""The order of the rows in a day's one file, which derive or compact wrote: readers skip what they do not ask for."""

UNIQUE_BY: Final[Mapping[str, list[str]]] = MappingProxyType(
    {
        "events": ["log_id", "seq"],
        "partitions": ["log_id", "seq", "topic", "partition"],
        "commits": ["cluster", "log_partition", "log_offset"],
        "members": ["cluster", "log_partition", "log_offset", "member_id", "topic", "partition"],
        "ends": ["cluster", "topic", "partition", "observed_at_ms"],
    }
)
"""The columns whose values no two rows of a streamed table share."""

DAY: Final = StructField("day", DateType())


def columns_of(schema: StructType) -> list[str]:
    """The names of the columns, in order: the last ``select`` of a transform."""
    return list(schema.fieldNames())


def with_day(schema: StructType) -> StructType:
    """The schema as a reader sees it: the day comes from the path."""
    return StructType([*schema.fields, DAY])
