import pytest

from karrot.eventlog.memory import MemoryEventLog
from support.eventlog.event_log_contract import MAX_GROUPS, RETENTION_MS, STALE_MS, EventLogContract, OpenLog
from support.manual_clock import ManualClock


class TestMemoryEventLog(EventLogContract):
    @pytest.fixture
    def open_log(self, clock: ManualClock) -> OpenLog:
        return lambda: MemoryEventLog(
            clock, stale_after_ms=STALE_MS, retention_ms=RETENTION_MS, max_consumers=MAX_GROUPS
        )
