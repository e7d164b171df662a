"""A data directory and archive lines of 2.0.0a1 open, and Karrot goes on from them."""

import gzip
import zlib
from pathlib import Path

import apsw
import msgspec

from karrot.burrow.payload import parse_webhook
from karrot.event import AgeKind, GroupKey
from karrot.event_json_line import decode, event_of
from karrot.eventlog.base import Damaged, StoredEvent, StoredSummary
from karrot.eventlog.sqlite import SqliteEventLog, data_directory
from support.burrow.lag_events import make_partition
from support.burrow.recorded_bodies import recorded_body
from support.eventlog.appended_events import append_event, stored_events
from support.eventlog.sqlite_log import open_sqlite
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
    data_directory.prepare(directory, clock, max_bytes=1 << 26)
    assert not list(directory.glob("*.corrupt-*"))
    return SqliteEventLog(directory, clock, retention_ms=10 * 365 * 86_400_000)


def test_a_data_directory_of_an_older_karrot_keeps_its_events_counters_and_cursors(tmp_path: Path) -> None:
    log = opened(old_directory(tmp_path / "data"), ManualClock())
    events = [each for each in log.read(0) if isinstance(each, StoredEvent)]
    assert {each.log_id for each in events} == {(OLD / "log-id").read_text().strip()}
    assert [(each.seq, each.event.status_text, each.summary.signals.lag_seconds_kind) for each in events] == [
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
    assert [each.seq for each in log.recent([ORDERS])[0]] == [4, 2, 1]
    log.close()


def test_an_event_without_a_stored_summary_has_the_same_one_from_its_body_and_age(tmp_path: Path) -> None:
    log = open_sqlite(tmp_path, ManualClock())
    append_event(log, partitions=(make_partition(current_lag=7), make_partition(partition=1, status_text="ABANDONED")))
    [told], [[summary]] = stored_events(log), log.recent([ORDERS])
    age = told.summary.signals
    assert age.lag_seconds is not None
    with apsw.Connection(str(tmp_path / "events.db")) as connection:
        row = connection.execute("SELECT received_at_ms, observed_at_ms, log_time_ms, body FROM events").get
        packed = msgspec.msgpack.encode((age.lag_seconds, age.lag_seconds_kind, age.lag_seconds_partition))
        crc = zlib.crc32(packed, zlib.crc32(row[3], zlib.crc32(repr((*row[:3], b"webhook")).encode())))
        connection.execute("UPDATE events SET summary = NULL, age = ?, crc = ?", (packed, crc))
    assert stored_events(log) == [told]
    assert log.recent([ORDERS])[0] == [told]
    assert summary == StoredSummary(told.log_id, told.seq, told.log_time_ms, told.summary)
    log.close()


def test_a_damaged_summary_is_left_out_and_computed_for_readers_of_the_event(tmp_path: Path) -> None:
    log = open_sqlite(tmp_path, ManualClock())
    append_event(log)
    [told] = stored_events(log)
    with apsw.Connection(str(tmp_path / "events.db")) as connection:
        connection.execute("UPDATE events SET log_time_ms = log_time_ms + 1, summary = substr(summary, 1, 9)")
    assert log.recent([ORDERS]) == [[]]
    assert [type(each) for each in log.read(0)] == [Damaged]
    with apsw.Connection(str(tmp_path / "events.db")) as connection:
        connection.execute("UPDATE events SET log_time_ms = log_time_ms - 1")
    assert [each.event for each in stored_events(log)] == [told.event]
    log.close()


def test_old_events_are_read_until_they_have_many_bytes(tmp_path: Path) -> None:
    log = open_sqlite(tmp_path, ManualClock())
    for _ in range(6):
        append_event(log, extras=(("filler", "x" * (200 << 10)),))
    assert len(log.recent([ORDERS])[0]) == 6
    with apsw.Connection(str(tmp_path / "events.db")) as connection:
        connection.execute("UPDATE events SET summary = NULL")
    assert len(log.recent([ORDERS])[0]) == 6
    assert len(log.recent([ORDERS, *(GroupKey("prod-eu", str(number)) for number in range(31))])[0]) == 2
    log.close()


def test_archive_lines_of_an_older_karrot_are_read() -> None:
    lines = [decode(line) for line in (OLD / "archive-lines.jsonl").read_bytes().splitlines()]
    assert [(line.seq, line.status, line.lag_seconds_kind) for line in lines] == [
        (1, "WARN", None),
        (2, "ERR", None),
        (3, "WARN", None),
    ]
    assert all(line.lag_seconds is not None for line in lines)
    assert [event_of(line).summary.signals.lag_seconds_kind for line in lines] == [None, None, None]
