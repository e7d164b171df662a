"""The archive reporter writes a log to a real folder, fed as by delivery, with a clock that the test sets."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot import telemetry
from karrot.delivery import Feed
from karrot.event_json_line import line_of
from karrot.eventlog.base import READ_LIMIT, Counter, Cursor, Damaged, ReporterState, StoredEvent
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.archive import build
from karrot.reporters.archive.local_folder import Folder
from karrot.reporters.archive.segment_store import SegmentName, StoredSegment, StoreError, end_ms, hour_at
from karrot.reporters.base import Unreported
from karrot.text import iso_ms
from support.eventlog.appended_events import append_event, append_many
from support.manual_clock import ManualClock
from support.reporters.archive_folder import archive_feed, read_archive, segment_names
from support.reporters.reporter_context import make_context

HOUR_MS = 3_600_000


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def run(feed: Feed) -> None:
    """Run steps until none has work."""
    while feed.step() == 0:
        pass


def wait(feed: Feed, clock: ManualClock, ms: int = 60_000) -> None:
    clock.advance(ms)
    run(feed)


def seqs(archive: Path) -> list[int]:
    return [line.seq for line in read_archive(archive)]


def ranges(archive: Path) -> list[tuple[int, int]]:
    return [(name.first, name.last) for name in segment_names(archive)]


def counted(log: MemoryEventLog, name: str) -> dict[str, float]:
    return {dict(each.labels).get("outcome", ""): each.value for each in log.counters() if each.name == name}


def test_a_segment_is_written_every_minute_if_there_are_events(
    log: MemoryEventLog, clock: ManualClock, archive: Path
) -> None:
    feed = archive_feed(log, clock, archive)
    append_event(log)
    assert feed.step() == 60
    assert ranges(archive) == [(1, 1)]
    wait(feed, clock, 59_999)
    append_event(log)
    append_event(log)
    run(feed)
    assert ranges(archive) == [(1, 1)]
    wait(feed, clock, 1)
    assert [name.path for name in segment_names(archive)] == [
        f"day=2027-01-15/hour=08/{log.log_id}-1-1-1.jsonl.gz",
        f"day=2027-01-15/hour=08/{log.log_id}-2-3-2.jsonl.gz",
    ]
    assert seqs(archive) == [1, 2, 3]
    assert log.cursor("archive") == Cursor(log.log_id, 3)


def test_without_the_bodies_a_line_has_everything_else(log: MemoryEventLog, clock: ManualClock, archive: Path) -> None:
    append_event(log)
    archive_feed(log, clock, archive, body="false").step()
    event = log.event(1)
    assert event is not None
    assert read_archive(archive) == [msgspec.structs.replace(line_of(event), body=None)]


def test_a_process_that_lost_the_lead_writes_no_segment(log: MemoryEventLog, clock: ManualClock, archive: Path) -> None:
    context = replace(make_context("archive", {"dir": str(archive)}, log=log, clock=clock), leads=lambda: False)
    append_event(log)
    build(context).report(Unreported(log, Cursor(log.log_id, 0)))
    assert segment_names(archive) == []


def crash(feed: Feed) -> None:
    """Let the reporter report. The feed never learns about it, so the cursor stays."""
    assert feed.reporter is not None
    cursor = feed.log.cursor("archive") or Cursor(feed.log.log_id, 0)
    feed.reporter.report(Unreported(feed.log, cursor))
    feed.reporter.close()


class Surprising(MemoryEventLog):
    """A log whose second event has a body that is not UTF-8."""

    def read(self, after: int, limit: int = READ_LIMIT) -> list[StoredEvent | Damaged]:
        found = super().read(after, limit)
        return [
            replace(each, body=b"\xff") if isinstance(each, StoredEvent) and each.seq == 2 else each for each in found
        ]


def test_an_unexpected_event_is_counted_and_does_not_block_others(clock: ManualClock, archive: Path) -> None:
    log = Surprising(clock)
    feed = archive_feed(log, clock, archive)
    for _ in range(3):
        append_event(log)
    run(feed)
    assert seqs(archive) == [1, 3]
    dropped = [each for each in log.counters() if each.name == telemetry.REPORTER_DROPPED.name]
    assert [(dict(each.labels), each.value) for each in dropped] == [
        ({"reporter": "archive", "reason": "unexpected"}, 1)
    ]
    assert log.cursor("archive") == Cursor(log.log_id, 3)


def test_a_segment_is_written_just_after_the_end_of_its_hour(
    log: MemoryEventLog, clock: ManualClock, archive: Path
) -> None:
    clock.advance(HOUR_MS // 2)
    feed = archive_feed(log, clock, archive, segment_seconds="1h")
    append_event(log)
    run(feed)
    append_event(log)
    wait(feed, clock, end_ms(hour_at(clock.wall_ms())) - clock.wall_ms())
    assert seqs(archive) == [1]
    wait(feed, clock, 1000)
    assert seqs(archive) == [1, 2]
    assert [name.path.rpartition("/")[0] for name in segment_names(archive)] == ["day=2027-01-15/hour=08"] * 2


def test_an_event_of_the_next_hour_starts_a_segment(log: MemoryEventLog, clock: ManualClock, archive: Path) -> None:
    append_event(log)
    clock.advance(HOUR_MS)
    append_event(log)
    clock.jump(-HOUR_MS)  # events after the clock was set back stay in the segment of the events before
    append_event(log)
    feed = archive_feed(log, clock, archive)
    run(feed)
    feed.close()
    found = [(name.path.partition("/")[2].partition("/")[0], name.first, name.last) for name in segment_names(archive)]
    assert found == [("hour=08", 1, 1), ("hour=09", 2, 3)]


def test_a_segment_is_cut_before_it_is_too_large(log: MemoryEventLog, clock: ManualClock, archive: Path) -> None:
    for _ in range(20):
        append_event(log)
    feed = archive_feed(log, clock, archive, segment_bytes="8KiB")
    run(feed)
    assert [last - first for first, last in ranges(archive)] == [2] * 6 + [1]
    assert seqs(archive) == list(range(1, 21))
    assert log.cursor("archive") == Cursor(log.log_id, 20)


def test_the_end_writes_the_waiting_events(log: MemoryEventLog, clock: ManualClock, archive: Path) -> None:
    feed = archive_feed(log, clock, archive)
    append_event(log)
    run(feed)
    append_event(log)
    feed.close()
    assert seqs(archive) == [1, 2]
    assert log.cursor("archive") == Cursor(log.log_id, 2)


def test_a_crash_between_the_rename_and_the_move_of_the_cursor_writes_nothing_twice(
    log: MemoryEventLog, clock: ManualClock, archive: Path
) -> None:
    append_event(log)
    append_event(log)
    crash(archive_feed(log, clock, archive))
    assert (ranges(archive), log.cursor("archive")) == ([(1, 2)], None)

    successor = archive_feed(log, clock, archive)
    run(successor)
    assert log.cursor("archive") == Cursor(log.log_id, 2)
    append_event(log)
    successor.close()
    assert ranges(archive) == [(1, 2), (3, 3)]
    assert seqs(archive) == [1, 2, 3]


def test_a_cursor_ahead_of_the_archive_is_kept(log: MemoryEventLog, clock: ManualClock, archive: Path) -> None:
    feed = archive_feed(log, clock, archive)
    append_event(log)
    run(feed)
    feed.close()
    (archive / segment_names(archive)[0].path).unlink()  # an operator moved the folder away
    append_event(log)
    successor = archive_feed(log, clock, archive)
    run(successor)
    successor.close()
    assert ranges(archive) == [(2, 2)]


def test_a_replaced_log_starts_again_next_to_the_existing_segments(
    log: MemoryEventLog, clock: ManualClock, archive: Path
) -> None:
    feed = archive_feed(log, clock, archive)
    append_event(log)
    run(feed)
    replaced = MemoryEventLog(clock)
    append_event(replaced)
    append_event(replaced)
    feed.log = replaced
    wait(feed, clock)
    found = {(name.log_id, name.first, name.last) for name in segment_names(archive)}
    assert found == {(log.log_id, 1, 1), (replaced.log_id, 1, 2)}
    assert replaced.cursor("archive") == Cursor(replaced.log_id, 2)


def test_two_processes_never_write_at_once(log: MemoryEventLog, clock: ManualClock, archive: Path) -> None:
    first, second = archive_feed(log, clock, archive), archive_feed(log, clock, archive)
    append_event(log)
    run(first)
    append_event(log)
    second.step()
    (state,) = log.reporters()
    assert (state.state, state.last_error) == ("failing", f"another process writes to the archive {archive}")
    first.close()
    wait(second, clock, 1000)
    second.close()
    assert ranges(archive) == [(1, 1), (2, 2)]


def test_an_unusable_location_holds_the_cursor_and_is_tried_less_and_less_often(
    log: MemoryEventLog, clock: ManualClock, archive: Path
) -> None:
    feed = archive_feed(log, clock, archive)
    archive.write_text("not a folder")
    append_event(log)
    assert 0.5 <= feed.step() <= 1
    clock.advance(1000)
    assert 1 <= feed.step() <= 2
    (state,) = log.reporters()
    assert (state.state, state.cursor) == ("failing", None)
    assert "the archive" in (state.last_error or "")
    archive.unlink()
    wait(feed, clock, 2000)
    assert seqs(archive) == [1]
    assert log.reporters()[0].state == "ok"


def test_a_segment_that_cannot_be_written_is_written_later_with_the_events_that_came_meanwhile(
    log: MemoryEventLog, clock: ManualClock, archive: Path
) -> None:
    feed = archive_feed(log, clock, archive, segment_bytes="256KiB")
    blocked = archive / hour_at(clock.wall_ms())
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    append_many(log, 600)
    assert feed.step() > 0
    assert log.cursor("archive") is None
    blocked.unlink()
    append_many(log, 600)
    wait(feed, clock)
    assert seqs(archive) == list(range(1, 1201))


def test_a_segment_whose_write_seemed_to_fail_is_written_once(
    log: MemoryEventLog, clock: ManualClock, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = archive_feed(log, clock, archive)
    append_event(log)
    with monkeypatch.context() as patch:
        put = Folder.put

        def put_and_lose_the_answer(folder: Folder, name: SegmentName, data: bytes) -> None:
            put(folder, name, data)
            raise StoreError("unavailable", "the answer is lost")

        patch.setattr(Folder, "put", put_and_lose_the_answer)
        assert feed.step() > 0
    append_event(log)
    wait(feed, clock)
    assert seqs(archive) == [1, 2]
    assert log.cursor("archive") == Cursor(log.log_id, 2)


def test_segments_are_written_while_old_ones_cannot_be_deleted(
    log: MemoryEventLog, clock: ManualClock, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("permission", "the role may not delete")

    feed = archive_feed(log, clock, archive, retention="1h")
    append_event(log)
    run(feed)
    monkeypatch.setattr(Folder, "remove", refuse)
    for _ in range(2):
        append_event(log)
        wait(feed, clock, 2 * HOUR_MS)
    assert ranges(archive) == [(1, 1), (2, 2), (3, 3)]
    (state,) = log.reporters()
    assert (state.state, state.last_error, state.cursor) == (
        "failing",
        "the role may not delete",
        Cursor(log.log_id, 3),
    )
    labels = (("reason", "retention_permission"), ("reporter", "archive"))
    assert Counter("karrot_reporter_failures_total", labels, 2) in log.counters()


def test_old_segments_are_deleted_and_counted(log: MemoryEventLog, clock: ManualClock, archive: Path) -> None:
    feed = archive_feed(log, clock, archive, retention="2h")
    for _ in range(5):
        append_event(log)
        run(feed)
        clock.advance(HOUR_MS)
    assert [name.first for name in segment_names(archive)] == [3, 4, 5]
    assert counted(log, "karrot_reporter_archive_segments_total") == {"written": 5, "aged_out": 2}
    sizes = counted(log, "karrot_reporter_archive_bytes_total")
    assert sizes["written"] - sizes["aged_out"] == sum(
        (archive / each.path).stat().st_size for each in segment_names(archive)
    )


def test_a_clock_that_jumps_ahead_costs_no_segment(log: MemoryEventLog, clock: ManualClock, archive: Path) -> None:
    feed = archive_feed(log, clock, archive, retention="2h")
    append_event(log)
    run(feed)
    clock.jump(1000 * HOUR_MS)
    append_event(log)
    wait(feed, clock)
    assert seqs(archive) == [1, 2]


@pytest.mark.parametrize("hours_behind", [1, 1000])
@pytest.mark.parametrize("leader_is_behind", [False, True])
def test_events_of_a_replica_whose_clock_is_far_behind_are_kept(
    log: MemoryEventLog, clock: ManualClock, archive: Path, *, hours_behind: int, leader_is_behind: bool
) -> None:
    feed = archive_feed(log, clock, archive, retention="4h")
    for _ in range(2):
        clock.jump(-hours_behind * HOUR_MS)
        append_event(log)
        if leader_is_behind:
            wait(feed, clock)
        clock.jump(hours_behind * HOUR_MS)
        append_event(log)
        wait(feed, clock)
    assert seqs(archive) == [1, 2, 3, 4]
    clock.advance(6 * HOUR_MS)
    append_event(log)
    run(feed)
    assert seqs(archive) == [5]


def test_the_oldest_segments_are_deleted_if_all_together_are_too_large(
    log: MemoryEventLog, clock: ManualClock, archive: Path
) -> None:
    strange = archive / "day=2020-01-01" / "hour=00" / "notes.txt"
    strange.parent.mkdir(parents=True)
    strange.write_text("a" * 3_000_000)
    old = strange.with_name("old-1-9-9.jsonl.gz")
    old.write_bytes(b"a" * 600_000)
    older = strange.parents[1] / "hour=01" / "old-10-12-3.jsonl.gz"
    older.parent.mkdir()
    older.write_bytes(b"a" * 600_000)
    append_event(log)
    feed = archive_feed(log, clock, archive, max_bytes="1MiB", segment_bytes="512KiB", retention="3650d")
    run(feed)
    feed.close()
    assert [name.first for name in segment_names(archive)] == [1, 10]
    assert (strange.exists(), old.exists(), older.exists()) == (True, False, True)
    assert counted(log, "karrot_reporter_archive_segments_total") == {"written": 1, "over_size": 1}


@pytest.mark.parametrize("failing", ["the second listing", "the deletion", "its answer"])
def test_no_segment_too_many_is_deleted_after_a_listing_or_a_deletion_failed(
    log: MemoryEventLog, clock: ManualClock, archive: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    within, remove, listings, deletions = Folder.within, Folder.remove, count(), count()

    def listed(folder: Folder, hour: str) -> Iterator[StoredSegment]:
        if failing == "the second listing" and next(listings) == 1:
            raise StoreError("unavailable", "the disk is away")
        return within(folder, hour)

    def removed(folder: Folder, names: Iterable[SegmentName]) -> None:
        fails = failing != "the second listing" and next(deletions) == 0
        if failing != "the deletion" or not fails:
            remove(folder, names)
        if fails:
            raise StoreError("unavailable", "the disk is away")

    hour = archive / "day=2027-01-15" / "hour=07"
    hour.mkdir(parents=True)
    for first in (1, 2, 3):
        (hour / f"old-{first}-{first}-1.jsonl.gz").write_bytes(bytes(500_000))
    monkeypatch.setattr(Folder, "within", listed)
    monkeypatch.setattr(Folder, "remove", removed)
    feed = archive_feed(log, clock, archive, max_bytes="1MiB", segment_bytes="8KiB")
    for _ in range(3):
        append_event(log)
        wait(feed, clock)
    feed.close()
    assert sorted(path.name[:5] for path in hour.iterdir()) == ["old-2", "old-3"]
    (_, held, _) = json.loads(log.recall("archive", "report") or b"")["facts"]
    assert held["text"].startswith("5, together 1.0 MiB, from day=2027-01-15/hour=07 on")


def test_an_archive_that_is_exactly_full_loses_nothing(log: MemoryEventLog, clock: ManualClock, archive: Path) -> None:
    feed = archive_feed(log, clock, archive, max_bytes="1MiB", segment_bytes="8KiB")
    append_event(log)
    run(feed)
    written = sum((archive / each.path).stat().st_size for each in segment_names(archive))
    assert feed.reporter is not None
    filler = archive / "day=2027-01-15" / "hour=07" / "old-1-9-9.jsonl.gz"
    filler.parent.mkdir(parents=True)
    for size, kept in ((2**20 - written, True), (2**20 - written + 1, False)):
        filler.write_bytes(bytes(size))
        successor = archive_feed(log, clock, archive, max_bytes="1MiB", segment_bytes="8KiB")
        feed.close()
        log.save_reporter(ReporterState("archive", None))  # so that it lists the archive and writes nothing
        run(successor)
        assert filler.exists() == kept
        feed = successor


def test_the_page_of_the_reporter_describes_the_archive(log: MemoryEventLog, clock: ManualClock, archive: Path) -> None:
    append_event(log)
    feed = archive_feed(log, clock, archive)
    run(feed)
    feed.close()
    (name,) = segment_names(archive)
    size = (archive / name.path).stat().st_size / 2**20
    at = iso_ms(clock.wall_ms()).replace(".000Z", "Z")
    assert json.loads(log.recall("archive", "report") or b"") == {
        "at": at,
        "sent_count": 1,
        "facts": [
            {"name": "Place", "text": str(archive)},
            {"name": "Segments", "text": f"1, together {size:.1f} MiB, from day=2027-01-15/hour=08 on"},
            {"name": "Kept", "text": "30d, and at most 4GiB"},
        ],
        "sent": [{"what": name.path, "value": 1.0, "unit": "events", "observed_at": at}],
        "refused": [],
    }


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(["append", "append", "step", "wait", "hour", "set back", "crash", "restart"]), max_size=25)
)
def test_every_event_is_always_in_one_segment_of_its_hour_or_a_later_one(happenings: list[str]) -> None:
    clock = ManualClock()
    log = MemoryEventLog(clock)
    with TemporaryDirectory() as name:
        archive = Path(name)
        feed = archive_feed(log, clock, archive, segment_bytes="8KiB")
        for happening in [*happenings, "restart"]:
            match happening:
                case "append":
                    append_event(log)
                case "step":
                    feed.step()
                case "wait":
                    clock.advance(60_000)
                case "hour":
                    clock.advance(HOUR_MS)
                case "set back":
                    clock.jump(-HOUR_MS)
                case "crash":
                    crash(feed)  # the segments are written, the cursor is not
                    feed = archive_feed(log, clock, archive, segment_bytes="8KiB")
                case _:
                    run(feed)
                    feed.close()
                    feed = archive_feed(log, clock, archive, segment_bytes="8KiB")
        lines = read_archive(archive)
        assert [line.seq for line in lines] == list(range(1, log.size().last_seq + 1))
        for segment in segment_names(archive):
            hours = [hour_at(line.received_at_ms) for line in lines if segment.first <= line.seq <= segment.last]
            assert hours[0] == max(hours) == segment.hour
        assert log.cursor("archive") == (Cursor(log.log_id, len(lines)) if lines else None)
