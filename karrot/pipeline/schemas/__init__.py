"""Defines the columns of every table and of the archive's lines: the contracts of the pipeline.

- Every table is partitioned by ``day`` (UTC). The day is in the path and not in the files; `with_day` adds it.
- Moments are ``timestamp`` in UTC. If a source has epoch milliseconds, a column ``…_ms`` keeps them, because a
  timestamp cannot hold every such number.
- Lags, offsets and counts are in messages.
- NULL means "unknown". No number has this meaning.
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
"""The streamed tables: ``ingest`` and ``offsets`` write them batch by batch, below ``day=…/batch_id=…``."""

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
"""The derived tables: ``derive`` makes them day by day. A day has one file, and a large day has several."""

TABLES: Final[Mapping[str, StructType]] = MappingProxyType({**STREAMED, **DERIVED})

OFFSETS: Final = frozenset({"commits", "members", "ends"})
"""The streamed tables whose rows come from Kafka's offsets and not from events."""

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
"""The columns by which ``derive`` and ``compact`` sort the rows of a day's file, so that readers can skip rows."""

UNIQUE_BY: Final[Mapping[str, list[str]]] = MappingProxyType(
    {
        "events": ["log_id", "seq"],
        "partitions": ["log_id", "seq", "topic", "partition"],
        "commits": ["cluster", "log_partition", "log_offset"],
        "members": ["cluster", "log_partition", "log_offset", "member_id", "topic", "partition"],
        "ends": ["cluster", "topic", "partition", "observed_at_ms"],
    }
)
"""The columns that identify a row of a streamed table."""

_DAY: Final = StructField("day", DateType())


def columns_of(schema: StructType) -> list[str]:
    """The names of the columns, in order, for the last ``select`` of a transform."""
    return list(schema.fieldNames())


def with_day(schema: StructType) -> StructType:
    """The schema as a reader sees it, with the day from the path."""
    return StructType([*schema.fields, _DAY])
