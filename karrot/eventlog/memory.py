"""Keeps the event log in memory: for one worker, for tests, or to write nothing to disk. It ends with the process."""

from karrot.clock import Clock
from karrot.eventlog.sqlite.connections import MemoryFile
from karrot.eventlog.sqlite.store import Limits, SqlEventLog
from karrot.eventlog.sqlite.writer import InlineWriter


class MemoryEventLog(SqlEventLog):
    """The event log over a database in memory. It has no thread and no file, and need not be closed.

    ``bounds`` are those of `karrot.eventlog.sqlite.store.Limits`.
    """

    def __init__(self, clock: Clock, **bounds: int) -> None:
        limits = Limits(**bounds)
        file = MemoryFile(clock, max_bytes=limits.max_bytes)
        super().__init__(clock, file, file.lock, limits)
        self._writer = InlineWriter(self._committer.commit)

    def lead(self) -> bool:
        """True: there is no other process."""
        return True

    def resign(self) -> None:
        """Nothing to do: there is no other process."""

    def close(self) -> None:
        """Forget everything."""
        self._file.close()
