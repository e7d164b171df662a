"""Keeps the event log in memory: for one worker, for tests, or to write nothing to disk. It ends with the process."""

from karrot.clock import Clock
from karrot.eventlog.sqlite.connections import MemoryFile
from karrot.eventlog.sqlite.store import SqlEventLog
from karrot.eventlog.sqlite.writer import InlineWriter


class MemoryEventLog(SqlEventLog):
    """The event log over a database in memory. It has no thread and no file, and need not be closed."""

    def __init__(
        self,
        clock: Clock,
        *,
        stale_after_ms: int = 300_000,
        retention_ms: int = 86_400_000,
        max_bytes: int = 1 << 30,
        max_consumers: int = 50_000,
    ) -> None:
        file = MemoryFile(clock, max_bytes=max_bytes)
        super().__init__(
            clock,
            file,
            file.lock,
            stale_after_ms=stale_after_ms,
            retention_ms=retention_ms,
            max_bytes=max_bytes,
            max_consumers=max_consumers,
        )
        self._writer = InlineWriter(self._committer.commit)

    def lead(self) -> bool:
        """True: there is no other process."""
        return True

    def resign(self) -> None:
        """Nothing to do: there is no other process."""

    def close(self) -> None:
        """Forget everything."""
        self._file.close()
