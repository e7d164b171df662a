"""Stores the event log in PostgreSQL, which the workers of several replicas share."""

from karrot.eventlog.postgres.store import PostgresEventLog

__all__ = ["PostgresEventLog"]
