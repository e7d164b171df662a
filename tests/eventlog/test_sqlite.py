from pathlib import Path

import pytest

from karrot.burrow.payload import parse_stored
from karrot.eventlog import datadir
from karrot.eventlog.sqlite import SqliteEventLog
from support.clocks import ManualClock
from support.eventlog_contract import MOST, RETENTION_MS, STALE_MS, EventLogContract, Open

MAX_BYTES = 64 << 20


class TestSqliteEventLog(EventLogContract):
    @pytest.fixture
    def open_log(self, tmp_path: Path, clock: ManualClock) -> Open:
        datadir.prepare(tmp_path, clock, max_bytes=MAX_BYTES)
        return lambda: SqliteEventLog(
            tmp_path,
            clock,
            decode=parse_stored,
            stale_after_ms=STALE_MS,
            retention_ms=RETENTION_MS,
            max_bytes=MAX_BYTES,
            max_consumers=MOST,
        )
