"""What was: the pipeline's tables, read through DuckDB in milliseconds, without Spark.

Only this package imports duckdb (``pip install 'karrot-burrow[history]'``), and only when something is asked.
"""

from karrot.event import DayRange, Incident, TimeRange
from karrot.history.errors import HistoryError, HistoryUnavailable, NoTables, UnclearGroup, UnreadableTable
from karrot.history.groups import GroupOrder
from karrot.history.held_days import Days, day_ranges
from karrot.history.incidents import IncidentOrder
from karrot.history.moments import granularity, moment
from karrot.history.reader import History
from karrot.history.results import (
    GroupDescription,
    GroupHistory,
    PartitionDescription,
    Risk,
    RiskKind,
    Risks,
    SeriesPoint,
    StaleGroups,
    StalePartition,
    TimeSeries,
)
from karrot.history.series_metrics import METRICS, SeriesMetric, reads_newest_first

__all__ = [
    "METRICS",
    "DayRange",
    "Days",
    "GroupDescription",
    "GroupHistory",
    "GroupOrder",
    "History",
    "HistoryError",
    "HistoryUnavailable",
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
    "TimeRange",
    "TimeSeries",
    "UnclearGroup",
    "UnreadableTable",
    "day_ranges",
    "granularity",
    "moment",
    "reads_newest_first",
]
