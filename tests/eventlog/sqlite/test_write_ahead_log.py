"""The start after a crash finds the acknowledged events behind a damaged frame, and takes no other frame for them."""

import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from structlog.testing import capture_logs

from support.eventlog.appended_events import append_event, stored_events
from support.eventlog.rewound_log_contract import lost_events
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock

HEADER, FRAME = 32, 24 + 4096
BEFORE, EVENTS = 30, 6


@pytest.fixture
def crashed(tmp_path: Path, clock: ManualClock) -> Path:
    """A data directory after a crash. Its write-ahead log has six commits, and behind them frames from before."""
    data = tmp_path / "data"
    data.mkdir()
    log = open_sqlite(data, clock)
    for number in range(BEFORE):
        append_event(log, consumer=f"before-{number}")
    with closing(apsw.Connection(str(data / "events.db"))) as other:
        other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    for number in range(EVENTS):
        append_event(log, consumer=f"g{number}")
    shutil.copytree(data, tmp_path / "crashed")
    log.close()
    return tmp_path / "crashed"


def commits(wal: bytes) -> list[int]:
    """The ends of the commits since the last checkpoint."""
    ends = range(HEADER + FRAME, len(wal) + 1, FRAME)
    headers = [(end, wal[end - FRAME : end - FRAME + 24]) for end in ends]
    return [end for end, header in headers if header[8:16] == wal[16:24] and any(header[4:8])]


def start(crashed: Path, wal: bytes, clock: ManualClock) -> tuple[int, int]:
    """Start with this write-ahead log. Returns how many events are missing, and how many Karrot says are lost."""
    copy = crashed.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(crashed, copy)
    (copy / "events.db-wal").write_bytes(wal)
    with capture_logs() as logs, closing(open_sqlite(copy, clock)) as log:
        lost = int(lost_events(log))
        missing = BEFORE + EVENTS - len(stored_events(log))
    said = [(each["code"], each.get("events")) for each in logs if each["log_level"] == "error"]
    assert said == ([("log_rewound", lost)] if lost else [])
    return missing, lost


def test_events_behind_damage_at_any_place_are_counted_as_lost(crashed: Path, clock: ManualClock) -> None:
    wal = (crashed / "events.db-wal").read_bytes()
    *_, last, _ = ends = commits(wal)
    assert len(ends) == EVENTS
    assert len(wal) > ends[-1] + 20 * FRAME  # frames from before the checkpoint
    frames = range(HEADER, last, FRAME)
    fields = (0, 4, 8, 16, 24, 24 + 2000)  # page, end of a commit, salt, checksum, first and other bytes of the page
    for at in (1, 17, 25, *(frame + fields[number % len(fields)] for number, frame in enumerate(frames))):
        missing, lost = start(crashed, wal[:at] + bytes([wal[at] ^ 1]) + wal[at + 1 :], clock)
        assert missing == lost >= 2, at


def test_what_a_kill_or_a_power_cut_leaves_is_not_counted_as_lost(crashed: Path, clock: ManualClock) -> None:
    wal = (crashed / "events.db-wal").read_bytes()
    *_, last, end = commits(wal)
    old = wal[end:]
    assert start(crashed, wal, clock) == (0, 0)
    assert start(crashed, wal[:HEADER] + old, clock)[1] == 0  # killed after the header, before the first frame
    for at in range(last, end, FRAME):
        for written in (0, 24, 3000):  # killed in a write
            assert start(crashed, wal[: at + written], clock) == (1, 0)
            assert start(crashed, wal[: at + written] + old, clock) == (1, 0)
        assert start(crashed, wal[:at] + bytes(FRAME) + wal[at + FRAME :], clock) == (1, 0)  # the cut lost one write
