"""Implements the event log in memory, for one worker or for tests. The log is gone when the process ends."""

from typing import Unpack

from karrot.clock import Clock
from karrot.eventlog.sql_log import ChosenLimits, Limits
from karrot.eventlog.sqlite.connections import MemoryFile
from karrot.eventlog.sqlite.store import SqliteDatabaseLog
from karrot.eventlog.writer import InlineWriter


class MemoryEventLog(SqliteDatabaseLog):
    """The event log in a database in memory. It has no thread and no file, and you need not close it.

    ``bounds`` are those of `karrot.eventlog.sql_log.Limits`.
    """

    def __init__(self, clock: Clock, **bounds: Unpack[ChosenLimits]) -> None:
        limits = Limits(**bounds)
        file = MemoryFile(clock, max_bytes=limits.max_bytes)
        super().__init__(clock, file, file.lock, limits)
        self._writer = InlineWriter(self._committer.commit)

    def lead(self) -> bool:
        """True, because there is no other process."""
        return True

    def leads(self) -> bool:
        """True, because there is no other process."""
        return True

    def resign(self) -> None:
        """Do nothing, because there is no other process."""

    def close(self) -> None:
        """Close the database. The log is gone."""
        self._file.close()
