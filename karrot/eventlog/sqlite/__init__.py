"""The event log in one SQLite file, shared by all workers of one machine."""

from karrot.eventlog.sqlite.store import SqliteEventLog

__all__ = ["SqliteEventLog"]
