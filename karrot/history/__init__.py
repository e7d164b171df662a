"""What was: the pipeline's tables, read through DuckDB in milliseconds, without Spark.

Only this package imports duckdb (``pip install 'karrot-burrow[history]'``), and only when something is asked.
"""

from karrot.history.errors import HistoryError, HistoryUnavailable, NoTables, UnclearGroup, UnreadableTable
from karrot.history.groups import GroupOrder
from karrot.history.held_days import Days, Stretch, stretches
from karrot.history.incidents import IncidentOrder
from karrot.history.reader import History
from karrot.history.results import (
    GroupDescription,
    GroupHistory,
    Incident,
    PartitionDescription,
    Point,
    Risk,
    RiskKind,
    Risks,
    StaleGroups,
    StalePartition,
    TimeSeries,
)
from karrot.history.series_metrics import METRICS, Metric, reads_newest_first
from karrot.history.time_ranges import Span, granularity, moment

__all__ = [
    "METRICS",
    "Days",
    "GroupDescription",
    "GroupHistory",
    "GroupOrder",
    "History",
    "HistoryError",
    "HistoryUnavailable",
    "Incident",
    "IncidentOrder",
    "Metric",
    "NoTables",
    "PartitionDescription",
    "Point",
    "Risk",
    "RiskKind",
    "Risks",
    "Span",
    "StaleGroups",
    "StalePartition",
    "Stretch",
    "TimeSeries",
    "UnclearGroup",
    "UnreadableTable",
    "granularity",
    "moment",
    "reads_newest_first",
    "stretches",
]
