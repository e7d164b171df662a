"""Why there is no answer; each text is a sentence for the one who asked."""

__all__ = ["HistoryError", "HistoryUnavailable", "NoTables", "UnclearGroup", "UnreadableTable"]


class HistoryError(Exception):
    """There is no answer."""


class HistoryUnavailable(HistoryError):  # noqa: N818 (names what is missing)
    """DuckDB is not installed."""


class NoTables(HistoryError):  # noqa: N818 (names what is missing)
    """There are no tables where they were looked for."""


class UnreadableTable(HistoryError):  # noqa: N818 (names what was found)
    """A table is damaged, has not the columns that are asked for, or would not hold still."""


class UnclearGroup(HistoryError):  # noqa: N818 (names what was asked)
    """Several clusters have a group of this name."""
