import pytest

from karrot.eventlog.memory import MemoryEventLog
from support.eventlog.event_log_contract import MOST, RETENTION_MS, STALE_MS, EventLogContract, Open
from support.manual_clock import ManualClock


class TestMemoryEventLog(EventLogContract):
    @pytest.fixture
    def open_log(self, clock: ManualClock) -> Open:
        return lambda: MemoryEventLog(clock, stale_after_ms=STALE_MS, retention_ms=RETENTION_MS, max_consumers=MOST)
