"""A data directory and archive lines of 2.0.0a1 open, and Karrot goes on from them."""

import gzip
from pathlib import Path

from karrot.burrow.payload import parse_webhook
from karrot.event import AgeKind, GroupKey
from karrot.event_json_line import decode, event_of
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.sqlite import SqliteEventLog, datadir
from support.burrow.recorded_bodies import recorded_body
from support.manual_clock import ManualClock

OLD = Path(__file__).resolve().parents[2] / "data" / "v2.0.0a1"
ORDERS = GroupKey("prod-eu", "orders-svc")


def old_directory(place: Path) -> Path:
    """Return a copy of the recorded data directory."""
    place.mkdir()
    (place / "events.db").write_bytes(gzip.decompress((OLD / "events.db.gz").read_bytes()))
    (place / "log-id").write_bytes((OLD / "log-id").read_bytes())
    return place


def opened(directory: Path, clock: ManualClock) -> SqliteEventLog:
    datadir.prepare(directory, clock, max_bytes=1 << 26)
    assert not list(directory.glob("*.corrupt-*"))
    return SqliteEventLog(directory, clock, retention_ms=10 * 365 * 86_400_000)


def test_a_data_directory_of_an_older_karrot_keeps_its_events_counters_and_cursors(tmp_path: Path) -> None:
    log = opened(old_directory(tmp_path / "data"), ManualClock())
    events = [each for each in log.read(0) if isinstance(each, StoredEvent)]
    assert log.log_id == (OLD / "log-id").read_text().strip()
    assert [(each.seq, each.event.status_text, each.age) for each in events] == [
        (1, "WARN", None),
        (2, "ERR", None),
        (3, "WARN", None),
    ]
    assert {each.name: each.value for each in log.counters()}["karrot_webhook_events_total"] == 3
    cursor = log.cursor("stdout")
    assert cursor is not None
    assert cursor.seq == 2
    log.close()


def test_the_next_event_of_an_older_group_gets_an_age(tmp_path: Path) -> None:
    clock = ManualClock()
    log = opened(old_directory(tmp_path / "data"), clock)
    body = recorded_body("karrot_v1.9.5_warn.json")
    assert log.append(parse_webhook(body, observed_at_ms=clock.wall_ms()), body).seq == 4
    state = log.group(ORDERS)
    assert state is not None
    assert state.summary.signals.lag_seconds_kind is AgeKind.EXACT
    assert [each.seq for each in log.recent(ORDERS)] == [4, 2, 1]
    log.close()


def test_archive_lines_of_an_older_karrot_are_read() -> None:
    lines = [decode(line) for line in (OLD / "archive-lines.jsonl").read_bytes().splitlines()]
    assert [(line.seq, line.status, line.lag_seconds_kind) for line in lines] == [
        (1, "WARN", None),
        (2, "ERR", None),
        (3, "WARN", None),
    ]
    assert all(line.lag_seconds is not None for line in lines)
    assert [event_of(line).age for line in lines] == [None, None, None]
