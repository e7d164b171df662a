"""Answers questions about the past from the pipeline's tables, with DuckDB, in milliseconds and without Spark.

Only this package imports duckdb (``pip install 'karrot-burrow[history]'``), and only at the first query.
"""

from karrot.history.answers_and_errors import HistoryError
from karrot.history.table_queries import History
from karrot.history.time_ranges import TimeRange

__all__ = ["History", "HistoryError", "TimeRange"]
