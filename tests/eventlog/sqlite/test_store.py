import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import apsw
import msgspec
import pytest
from structlog.testing import capture_logs

from karrot.burrow.payload import to_wire
from karrot.event import GroupKey
from karrot.eventlog import rows
from karrot.eventlog.base import (
    Counter,
    Cursor,
    Damaged,
    LogUnavailableError,
    OverloadedError,
    ReporterState,
    StoredEvent,
)
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.locks import FileLock
from karrot.eventlog.log_end_history import LogEndHistory
from karrot.eventlog.sqlite import SqliteEventLog
from karrot.eventlog.sqlite.store import SqliteTransaction
from support.burrow.lag_events import make_event
from support.eventlog.appended_events import append_event, group_names, stored_events
from support.eventlog.event_log_contract import MAX_GROUPS, RETENTION_MS, STALE_MS, EventLogContract, OpenLog
from support.eventlog.mutes import assert_that_processes_share_mutes
from support.eventlog.rewound_log_contract import (
    KeepCopy,
    RewoundLogContract,
    append,
    archive_now,
    archived,
    ids,
    lost_events,
)
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock
from support.reporters.archive_folder import archive_feed


class TestSqliteEventLog(EventLogContract):
    @pytest.fixture
    def open_log(self, tmp_path: Path, clock: ManualClock) -> OpenLog:
        return lambda: open_sqlite(
            tmp_path, clock, stale_after_ms=STALE_MS, retention_ms=RETENTION_MS, max_consumers=MAX_GROUPS
        )


class TestRewoundSqliteEventLog(RewoundLogContract):
    @pytest.fixture
    def open_log(self, tmp_path: Path, clock: ManualClock) -> OpenLog:
        (tmp_path / "data").mkdir()
        return lambda: open_sqlite(tmp_path / "data", clock)

    @pytest.fixture
    def keep_copy(self, tmp_path: Path) -> KeepCopy:
        return lambda: copy_of(tmp_path / "data")


def copy_of(directory: Path) -> Callable[[], None]:
    """Copy a log as documented. The result puts the copy in its place, even if a service has it open."""
    copy = directory / "copy.db"
    with closing(apsw.Connection(str(directory / "events.db"))) as connection:
        connection.execute(f"VACUUM INTO '{copy}'")

    def restore() -> None:
        for tail in ("-wal", "-shm"):
            (directory / f"events.db{tail}").unlink(missing_ok=True)
        copy.rename(directory / "events.db")

    return restore


def test_events_that_a_damaged_write_ahead_log_lost_are_counted_once_and_the_archive_gets_every_later_event(
    tmp_path: Path, clock: ManualClock
) -> None:
    data, place, crashed = tmp_path / "data", tmp_path / "archive", tmp_path / "crashed"
    data.mkdir()
    log = open_sqlite(data, clock)
    names = [f"g{number}" for number in range(10)]
    append(log, *names)
    archive_now(archive_feed(log, clock, place))
    told = ids(log)
    shutil.copytree(data, crashed)
    log.close()
    wal = crashed / "events.db-wal"
    overwrite(wal, wal.stat().st_size // 2, b"\xa5" * 8)
    with capture_logs() as logs:
        log = open_sqlite(crashed, clock)
        kept = ids(log)
        assert kept == told[: len(kept)]
        assert 0 < len(kept) < 10
        append(log, "new-1", "new-2")
        archive_now(archive_feed(log, clock, place))
    assert [each["events"] for each in logs if each.get("code") == "log_rewound"] == [10 - len(kept)]
    assert lost_events(log) == 10 - len(kept)
    assert archived(place) == [*names, "new-1", "new-2"]
    log.close()


OpenHere = Callable[..., SqliteEventLog]


@pytest.fixture
def open_here(tmp_path: Path, clock: ManualClock) -> Iterator[OpenHere]:
    opened: list[SqliteEventLog] = []

    def open_one(**options: Any) -> SqliteEventLog:
        opened.append(open_sqlite(tmp_path, clock, prepare=not opened, **options))
        return opened[-1]

    yield open_one
    for log in opened:
        log.close()


def seqs(log: EventLog) -> list[int]:
    return [event.seq for event in log.read(0)]


def test_all_data_are_there_after_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    before = open_sqlite(tmp_path, clock)
    append_event(before)
    before.count("karrot_x_total", 3)
    before.save_reporter(ReporterState("stdout", Cursor(before.log_id, 1), "ok"))
    told = (before.read(0), before.live(), before.heard())
    before.close()
    after = open_sqlite(tmp_path, clock)
    assert (after.read(0), after.live(), after.heard()) == told
    assert Counter("karrot_x_total", (), 3) in after.counters()
    assert after.cursor("stdout") == Cursor(after.log_id, 1)
    assert append_event(after).seq == 2
    after.close()


def test_a_group_ages_while_the_service_is_down(tmp_path: Path, clock: ManualClock) -> None:
    first = open_sqlite(tmp_path, clock, stale_after_ms=STALE_MS)
    append_event(first)
    first.close()
    clock.reboot(down_ms=STALE_MS - 1_000)
    second = open_sqlite(tmp_path, clock, stale_after_ms=STALE_MS)
    assert group_names(second) == ["orders-svc"]
    clock.advance(1_001)
    assert group_names(second) == []
    second.close()


def test_a_clock_set_back_between_boots_makes_no_event_younger(tmp_path: Path, clock: ManualClock) -> None:
    first = open_sqlite(tmp_path, clock, stale_after_ms=STALE_MS)
    append_event(first)
    told = first.log_time_ms()
    first.close()
    clock.reboot(down_ms=-86_400_000)
    second = open_sqlite(tmp_path, clock, stale_after_ms=STALE_MS)
    assert second.log_time_ms() == told
    second.close()


def test_two_workers_share_one_log(open_here: OpenHere) -> None:
    one, two = open_here(), open_here()
    append_event(one, consumer="a")
    append_event(two, consumer="b")
    append_event(one, consumer="c")
    assert seqs(one) == seqs(two) == [1, 2, 3]
    assert group_names(two) == ["a", "b", "c"]
    one.count("karrot_x_total")
    two.count("karrot_x_total")
    one.flush()
    two.flush()
    assert list(one.counters()) == list(two.counters())
    assert Counter("karrot_x_total", (), 2) in one.counters()


def test_workers_share_mutes_and_lose_none(open_here: OpenHere, clock: ManualClock) -> None:
    assert_that_processes_share_mutes(open_here, clock)


def test_one_worker_leads_and_another_follows_it(open_here: OpenHere) -> None:
    one, two = open_here(), open_here()
    assert one.lead()
    assert not two.lead()
    one.resign()
    assert two.lead()
    assert not one.lead()


def test_concurrent_appends_are_committed_together_and_none_is_lost(open_here: OpenHere) -> None:
    logs = [open_here(), open_here()]

    def post(number: int) -> int:
        return append_event(logs[number % 2], consumer=f"g{number}", total_lag=number).seq

    with ThreadPoolExecutor(16) as pool:
        given = list(pool.map(post, range(400)))
    assert sorted(given) == list(range(1, 401))
    stored = {event.seq: event for event in logs[0].read(0)}
    for number, seq in enumerate(given):
        found = stored[seq]
        assert isinstance(found, StoredEvent)
        assert found.event.consumer == f"g{number}"


def test_an_event_that_waits_too_long_is_refused_and_never_stored(open_here: OpenHere, tmp_path: Path) -> None:
    log = open_here(patience_s=0.2)
    other = FileLock(tmp_path / "commit.lock")
    with other, pytest.raises(OverloadedError, match=r"waited 0\.15 s for a commit"):
        append_event(log, consumer="too late")
    append_event(log, consumer="in time")
    assert group_names(log) == ["in time"]
    assert seqs(log) == [1]
    other.close()


def test_a_write_that_fails_does_not_affect_other_writes_in_the_commit(open_here: OpenHere, tmp_path: Path) -> None:
    log = open_here(patience_s=30)
    outcomes: dict[str, object] = {}

    def post(consumer: str, observed_at_ms: int) -> None:
        try:
            outcomes[consumer] = append_event(log, consumer=consumer, observed_at_ms=observed_at_ms).tracked
        except LogUnavailableError as error:
            outcomes[consumer] = str(error).partition(":")[0]

    cases = [("before", 1), ("impossible", 2**63), ("after", 1)]
    other = FileLock(tmp_path / "commit.lock")
    with other:
        threads = [threading.Thread(target=post, args=case) for case in cases]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert outcomes == {"before": True, "impossible": "cannot be written", "after": True}
    assert group_names(log) == ["after", "before"]


def test_a_changed_byte_in_a_stored_event_is_noticed(open_here: OpenHere, tmp_path: Path) -> None:
    log = open_here()
    append_event(log)
    append_event(log, total_lag=5)
    with apsw.Connection(str(tmp_path / "events.db")) as file:
        file.execute("UPDATE events SET body = replace(CAST(body AS TEXT), 'WARN', 'WARM') WHERE seq = 1")
    damaged, whole = log.read(0)
    assert damaged == Damaged(log.log_id, 1)
    assert isinstance(whole, StoredEvent)
    assert log.event(1) is None
    with apsw.Connection(str(tmp_path / "events.db")) as file:
        file.execute("UPDATE events SET summary = replace(CAST(summary AS TEXT), 'WARN', 'WARM') WHERE seq = 1")
    assert [event.seq for event in log.recent([GroupKey("prod-eu", "orders-svc")])[0]] == [2]


def test_a_damaged_log_end_history_starts_again_and_is_counted(
    open_here: OpenHere, clock: ManualClock, tmp_path: Path
) -> None:
    log = open_here()
    append_event(log)
    with apsw.Connection(str(tmp_path / "events.db")) as file:
        file.execute("UPDATE log_ends SET samples = zeroblob(length(samples))")
    clock.advance(60_000)
    append_event(log)
    with apsw.Connection(str(tmp_path / "events.db")) as file:
        stored = [LogEndHistory.unpack(samples) for (samples,) in file.execute("SELECT samples FROM log_ends")]
    assert stored
    assert None not in stored
    assert Counter("karrot_log_ends_dropped_total", (("reason", "damaged"),), len(stored)) in log.counters()


def test_values_that_only_a_newer_karrot_knows_are_skipped(
    open_here: OpenHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_here()
    with monkeypatch.context() as newer:
        newer.setattr(rows, "_encode", lambda _value: msgspec.msgpack.encode("newer"))
        append_event(log)
    assert [each.event for each in stored_events(log)] == [make_event()]
    assert log.recent([GroupKey("prod-eu", "orders-svc")]) == [[]]
    assert group_names(log) == []
    append_event(log)
    assert group_names(log) == ["orders-svc"]


def test_a_group_with_a_damaged_state_is_skipped_until_its_next_event(open_here: OpenHere, tmp_path: Path) -> None:
    log = open_here()
    append_event(log, consumer="a")
    append_event(log, consumer="b", total_lag=5)
    with apsw.Connection(str(tmp_path / "events.db")) as file:
        file.execute("UPDATE groups SET state = zeroblob(length(state)) WHERE consumer = 'a'")
    assert group_names(log) == ["b"]
    assert log.group(GroupKey("prod-eu", "a")) is None
    append_event(log, consumer="a")
    assert group_names(log) == ["a", "b"]
    assert Counter("karrot_log_damaged_total", (), 1) in log.counters()


@pytest.mark.parametrize("column", ["log_time_ms", "seq", "last_seq"])
def test_a_changed_number_in_a_group_is_never_shown(open_here: OpenHere, tmp_path: Path, column: str) -> None:
    log = open_here()
    append_event(log)
    with apsw.Connection(str(tmp_path / "events.db")) as file:
        file.execute(f"UPDATE groups SET {column} = {column} + 4096")
    assert group_names(log) == []


def test_a_text_that_is_no_longer_utf8_counts_as_damage(open_here: OpenHere, tmp_path: Path) -> None:
    log = open_here()
    append_event(log)
    append_event(log, consumer="whole")
    with apsw.Connection(str(tmp_path / "events.db")) as file:
        file.execute("UPDATE events SET source = CAST(x'f7656268' AS TEXT) WHERE seq = 1")
        file.execute("UPDATE groups SET consumer = CAST(x'f7656268' AS TEXT) WHERE consumer = 'orders-svc'")
    assert log.read(0)[0] == Damaged(log.log_id, 1)
    assert group_names(log) == ["whole"]


@pytest.mark.parametrize("seed", range(25))
def test_the_log_still_works_after_flipped_bits(tmp_path: Path, clock: ManualClock, seed: int) -> None:
    first = open_sqlite(tmp_path, clock)
    for n in range(30):
        append_event(first, consumer=f"g{n}", total_lag=n)
    first.close()
    path, random = tmp_path / "events.db", Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(3):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    log = open_sqlite(tmp_path, clock)
    for state in log.live():
        number = int(state.key.consumer.removeprefix("g"))
        assert state.summary.total_lag == number
    for event in log.read(0):
        if isinstance(event, StoredEvent):
            assert event.event.consumer == f"g{event.event.total_lag}"
    for n in range(30):
        append_event(log, consumer=f"g{n}", total_lag=n + 100)
    assert len(group_names(log)) >= 30
    log.close()


def test_removing_the_write_ahead_log_under_a_running_service_loses_nothing(
    open_here: OpenHere, tmp_path: Path, clock: ManualClock
) -> None:
    one, two = open_here(), open_here()
    append_event(one, consumer="before")
    assert group_names(two) == ["before"]
    (tmp_path / "events.db-wal").unlink()
    append_event(one, consumer="after")
    append_event(two, consumer="other worker")
    assert group_names(one) == group_names(two) == ["after", "before", "other worker"]
    copy = tmp_path / "copy"
    copy.mkdir()
    for part in tmp_path.glob("events.db*"):
        (copy / part.name).write_bytes(part.read_bytes())
    survivor = open_sqlite(copy, clock)
    assert group_names(survivor) == ["after", "before", "other worker"]
    survivor.close()


def test_a_log_at_its_size_limit_drops_the_oldest_events_and_continues(open_here: OpenHere) -> None:
    log = open_here(max_bytes=2 << 20)
    filler = (("filler", "x" * 20_000),)
    last = max(append_event(log, extras=filler, total_lag=n).seq for n in range(200))
    found = seqs(log)
    assert found[-1] == last == 200
    assert found == list(range(found[0], 201))
    assert 60 < len(found) < 105
    assert log.size().events == len(found)
    assert log.size().bytes < (2 << 20) + (5 << 20)  # the file, and the write-ahead log before its checkpoint
    assert log.writable() is None


def test_pruning_keeps_the_log_below_its_size(open_here: OpenHere) -> None:
    log = open_here(max_bytes=20 << 20)
    filler = (("filler", "x" * 20_000),)
    for n in range(960):
        append_event(log, extras=filler, total_lag=n)
    before = log.size().events
    pruned = log.prune()
    assert 0 < pruned < 200
    assert log.size().events == before - pruned
    assert log.prune() == 0


def test_an_event_as_large_as_the_log_is_refused(open_here: OpenHere) -> None:
    log = open_here(max_bytes=1 << 20)
    with pytest.raises(LogUnavailableError, match="full"):
        append_event(log, extras=(("filler", "x" * (2 << 20)),))
    assert log.writable() == "FullError: database or disk is full"
    assert append_event(log).tracked
    assert log.writable() is None


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_file_damaged_under_a_running_service_is_set_aside(open_here: OpenHere, tmp_path: Path) -> None:
    one, two = open_here(), open_here()
    for n in range(50):
        append_event(one, consumer=f"g{n}", extras=(("filler", "x" * 20_000),))
    with apsw.Connection(str(tmp_path / "events.db")) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    old = one.log_id
    for page in range(1, 200):
        overwrite(tmp_path / "events.db", page * 4096, b"\xa5" * 4096)
    with capture_logs() as logs:
        assert append_event(one, consumer="after") == (1, True)
        assert append_event(two, consumer="other worker").seq == 2
    assert one.log_id != old
    codes = [each["code"] for each in logs if "code" in each]
    assert codes == ["log_set_aside", "log_created_again"]  # not wal_deleted by the other
    [path] = [each["path"] for each in logs if each.get("code") == "log_set_aside"]
    assert Path(path).name.startswith("events.db.corrupt-000001-20")
    append_event(one, consumer="after")
    assert two.log_id == one.log_id
    assert group_names(two) == group_names(one) == ["after", "other worker"]


def test_a_log_that_could_not_be_read_once_keeps_its_events(
    open_here: OpenHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_here()
    append_event(log, consumer="before")
    failures, finish = [apsw.CorruptError("SQLite says this of EIO too")], SqliteTransaction.finish

    def fail_once(transaction: SqliteTransaction, *parts: Any) -> None:
        finish(transaction, *parts)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(SqliteTransaction, "finish", fail_once)
    append_event(log, consumer="after")
    assert [event.event.consumer for event in stored_events(log)] == ["before", "after"]
    assert not list(tmp_path.glob("*.corrupt-*"))


def test_a_size_that_cannot_be_read_is_an_unreadable_log(open_here: OpenHere, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_here()
    monkeypatch.setattr(log._file, "wal_bytes", Mock(side_effect=OSError(5, "Input/output error")))
    with pytest.raises(LogUnavailableError):
        log.size()


def test_a_deleted_file_is_created_again(open_here: OpenHere, tmp_path: Path) -> None:
    log = open_here()
    append_event(log)
    old = log.log_id
    for part in tmp_path.glob("events.db*"):
        part.unlink()
    assert append_event(log, consumer="after").seq == 1
    assert log.log_id != old
    assert group_names(log) == ["after"]


def test_a_cursor_of_a_replaced_log_is_not_used_in_the_new_one(open_here: OpenHere) -> None:
    log = open_here()
    append_event(log)
    log.save_reporter(ReporterState("stdout", Cursor("another log", 1), "ok"))
    assert log.cursor("stdout") is None


def test_an_unreadable_log_reports_an_error(open_here: OpenHere, tmp_path: Path) -> None:
    log = open_here()
    append_event(log)
    for part in tmp_path.glob("events.db*"):
        part.unlink()
    with pytest.raises(LogUnavailableError, match="cannot be read"):
        log.live()


def test_a_closed_log_refuses_writes(tmp_path: Path, clock: ManualClock) -> None:
    log = open_sqlite(tmp_path, clock)
    log.close()
    event = make_event()
    with pytest.raises(LogUnavailableError, match="closed"):
        log.append(event, to_wire(event))


def test_many_new_names_cause_no_scan_per_event(open_here: OpenHere) -> None:
    log = open_here(max_consumers=10)
    with ThreadPoolExecutor(8) as pool:
        tracked = list(pool.map(lambda n: append_event(log, consumer=f"forged-{n}").tracked, range(200)))
    assert tracked.count(True) == 10
    assert log.size().groups == 10


def test_a_counter_never_decreases_while_its_counts_are_being_committed(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path, ManualClock())) as log:
        done = threading.Event()

        def commit() -> None:
            while not done.is_set():
                log.count("karrot_x_total")
                log.flush()

        thread = threading.Thread(target=commit)
        thread.start()
        shown = [sum(counter.value for counter in log.counters()) for _ in range(3000)]
        done.set()
        thread.join()
    assert shown == sorted(shown)
