"""Answers questions about the past from the pipeline's tables, with DuckDB, in milliseconds and without Spark.

Only this package imports duckdb (``pip install 'karrot-burrow[history]'``), and only at the first query.
"""

from karrot.event import DayRange, Incident, TimeRange
from karrot.history.held_days import Days, day_ranges
from karrot.history.moments import granularity, moment
from karrot.history.results import (
    AnswerTooLarge,
    GroupDescription,
    GroupHistory,
    HistoryError,
    HistoryFailed,
    HistoryHour,
    HistoryUnavailable,
    HourlyHistory,
    NoTables,
    PartitionDescription,
    Risk,
    RiskKind,
    Risks,
    SeriesPoint,
    StaleGroups,
    StalePartition,
    TablesRefused,
    TablesUnavailable,
    TimeSeries,
    TooSlow,
    UnclearGroup,
    UnreadableTable,
)
from karrot.history.table_queries import GroupOrder, History, IncidentOrder
from karrot.history.time_series import METRICS, SeriesMetric, reads_newest_first

__all__ = [
    "METRICS",
    "AnswerTooLarge",
    "DayRange",
    "Days",
    "GroupDescription",
    "GroupHistory",
    "GroupOrder",
    "History",
    "HistoryError",
    "HistoryFailed",
    "HistoryHour",
    "HistoryUnavailable",
    "HourlyHistory",
    "Incident",
    "IncidentOrder",
    "NoTables",
    "PartitionDescription",
    "Risk",
    "RiskKind",
    "Risks",
    "SeriesMetric",
    "SeriesPoint",
    "StaleGroups",
    "StalePartition",
    "TablesRefused",
    "TablesUnavailable",
    "TimeRange",
    "TimeSeries",
    "TooSlow",
    "UnclearGroup",
    "UnreadableTable",
    "day_ranges",
    "granularity",
    "moment",
    "reads_newest_first",
]
