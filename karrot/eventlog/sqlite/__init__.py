"""Stores the event log in one SQLite file that all workers of a machine share."""

from karrot.eventlog.sqlite.store import SqliteEventLog

__all__ = ["SqliteEventLog"]
