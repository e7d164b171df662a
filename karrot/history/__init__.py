"""Answers questions about the past from the pipeline's tables, by DuckDB in milliseconds and without Spark.

Only this package imports duckdb (``pip install 'karrot-burrow[history]'``), and only when something is asked. The
service has pages about the past and mostly no tables, so what reads them is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from karrot.event import DayRange, Incident, TimeRange
from karrot.history.results import (
    GroupDescription,
    GroupHistory,
    HistoryError,
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
    TimeSeries,
    UnclearGroup,
    UnreadableTable,
)

if TYPE_CHECKING:
    from karrot.history.groups import GroupOrder
    from karrot.history.held_days import Days, day_ranges
    from karrot.history.incidents import IncidentOrder
    from karrot.history.moments import granularity, moment
    from karrot.history.reader import History
    from karrot.history.time_series import METRICS, SeriesMetric, reads_newest_first

__all__ = [
    "METRICS",
    "DayRange",
    "Days",
    "GroupDescription",
    "GroupHistory",
    "GroupOrder",
    "History",
    "HistoryError",
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
    "TimeRange",
    "TimeSeries",
    "UnclearGroup",
    "UnreadableTable",
    "day_ranges",
    "granularity",
    "moment",
    "reads_newest_first",
]

_IMPORTED_LATER = {
    "METRICS": "time_series",
    "Days": "held_days",
    "GroupOrder": "groups",
    "History": "reader",
    "IncidentOrder": "incidents",
    "SeriesMetric": "time_series",
    "day_ranges": "held_days",
    "granularity": "moments",
    "moment": "moments",
    "reads_newest_first": "time_series",
}


def __getattr__(name: str) -> object:
    if name not in _IMPORTED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_IMPORTED_LATER[name]}"), name)
