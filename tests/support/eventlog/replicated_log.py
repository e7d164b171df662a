"""An event log in memory that answers like one in PostgreSQL: it has replicas and a server, which can be away."""

from collections.abc import Sequence

from karrot.event import GroupKey
from karrot.eventlog.base import (
    READ_LIMIT,
    Damaged,
    DatabaseStatus,
    LogUnavailableError,
    Reject,
    StoredEvent,
    StoredSummary,
)
from karrot.eventlog.sqlite.store import MemoryEventLog

REASON = "cannot connect to PostgreSQL: connection refused"
SERVER = DatabaseStatus(
    host="10.0.3.7",
    version="16.4",
    encrypted=True,
    synchronous_commit="on",
    synchronous_standby_names="ANY 1 (zone_b)",
    connections=14,
    max_connections=97,
    standby_lag_seconds={"zone_b": 0.0, "zone_c": 1.25},
)


class ReplicatedLog(MemoryEventLog):
    """``away_ms`` is how long the server has been away; ``None`` while it answers."""

    away_ms: int | None = None
    leading: str | None = "karrot-0"
    server = SERVER

    @property
    def replica(self) -> str:
        return "karrot-1"

    def leader(self) -> str | None:
        return self.leading

    def database(self) -> DatabaseStatus:
        return self.server

    def memory_age_ms(self) -> int | None:
        return self.away_ms

    def writable(self) -> str | None:
        return super().writable() if self.away_ms is None else REASON

    def read(self, after: int, limit: int = READ_LIMIT) -> Sequence[StoredEvent | Damaged]:
        self._refuse_if_away()
        return super().read(after, limit)

    def recent(self, keys: Sequence[GroupKey], limit: int = 50) -> Sequence[Sequence[StoredSummary]]:
        self._refuse_if_away()
        return super().recent(keys, limit)

    def since(self, key: GroupKey, received_ms: int, most: int) -> Sequence[StoredSummary]:
        self._refuse_if_away()
        return super().since(key, received_ms, most)

    def event(self, seq: int) -> StoredEvent | None:
        self._refuse_if_away()
        return super().event(seq)

    def rejects(self, limit: int = 50) -> Sequence[Reject]:
        self._refuse_if_away()
        return super().rejects(limit)

    def recall(self, reporter: str, name: str) -> bytes | None:
        self._refuse_if_away()
        return super().recall(reporter, name)

    def _refuse_if_away(self) -> None:
        if self.away_ms is not None:
            raise LogUnavailableError(REASON)
