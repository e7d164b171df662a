from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import apsw
import pytest

from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.sqlite.store import MemoryEventLog, SqliteTransaction
from support.eventlog.appended_events import append_event, group_names
from support.eventlog.event_log_contract import MAX_GROUPS, RETENTION_MS, STALE_MS, EventLogContract, OpenLog
from support.manual_clock import ManualClock


class TestMemoryEventLog(EventLogContract):
    @pytest.fixture
    def open_log(self, clock: ManualClock) -> OpenLog:
        return lambda: MemoryEventLog(
            clock, stale_after_ms=STALE_MS, retention_ms=RETENTION_MS, max_consumers=MAX_GROUPS
        )


def test_a_full_log_drops_its_oldest_events() -> None:
    log = MemoryEventLog(ManualClock(), max_bytes=1 << 20)
    for _ in range(60):
        append_event(log, extras=(("filler", "x" * 50_000),))
    size = log.size()
    assert size.bytes <= 1 << 20
    assert size.first_seq > 1
    assert size.last_seq == 60
    assert log.writable() is None


def test_several_threads_append_and_read_at_once() -> None:
    log = MemoryEventLog(ManualClock())

    def append_some(worker: int) -> None:
        for number in range(50):
            seq = append_event(log, consumer=f"g{worker}-{number}").seq
            assert len(log.read(0)) >= seq

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append_some, range(4)))
    assert (log.size().events, len(group_names(log))) == (200, 200)


def test_a_damaged_log_says_why_it_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise apsw.CorruptError("database disk image is malformed")

    log = MemoryEventLog(ManualClock())
    with monkeypatch.context() as patched:
        patched.setattr(SqliteTransaction, "append", fail)
        with pytest.raises(LogUnavailableError, match="in memory is damaged"):
            append_event(log)
    assert log.writable() == "the log in memory is damaged"
    append_event(log)
    assert log.writable() is None


def test_a_closed_log_says_that_it_cannot_be_used() -> None:
    log = MemoryEventLog(ManualClock())
    log.close()
    with pytest.raises(LogUnavailableError):
        append_event(log)
    with pytest.raises(LogUnavailableError):
        log.live()
