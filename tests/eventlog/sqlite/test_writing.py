"""The writer and the committer, on a real file."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import apsw
import pytest
from structlog.testing import capture_logs

from karrot.burrow.payload import to_wire
from karrot.event import GroupKey, Source
from karrot.eventlog.base import Appended, Limits, LogUnavailableError, Reject, UnconfirmedError, UnstorableError
from karrot.eventlog.locks import FileLock
from karrot.eventlog.next_group_state import Arrival, summarize
from karrot.eventlog.sqlite import data_directory
from karrot.eventlog.sqlite.database import Checkpointer, LogFile
from karrot.eventlog.sqlite.store import SqliteCommitter, SqliteTransaction
from karrot.eventlog.writer import Job, Take, WriteBuffer, Writer
from support.burrow.lag_events import make_event
from support.eventlog.sqlite_log import MAX_BYTES, open_sqlite
from support.manual_clock import ManualClock
from support.waiting import wait_for


class Parts(NamedTuple):
    file: LogFile
    lock: FileLock
    buffer: WriteBuffer
    committer: SqliteCommitter


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    clock = ManualClock()
    data_directory.prepare(tmp_path, clock, max_bytes=MAX_BYTES)
    file = LogFile(tmp_path, clock, max_bytes=MAX_BYTES)
    lock = FileLock(tmp_path / "commit.lock")
    buffer = WriteBuffer()
    yield Parts(file, lock, buffer, SqliteCommitter(file, lock, buffer, Limits(max_consumers=10)))
    file.close()
    lock.close()


def storing(consumer: str, size: int = 0) -> Job[Appended]:
    event = make_event(consumer=consumer, extras=(("filler", "x" * size),))
    arrived = Arrival(GroupKey(event.cluster, consumer), event, to_wire(event), 1, 1, summarize(event, 1), 0)
    return Job(arrived)


def failing(error: Exception) -> Job[Any]:
    def fail(_transaction: SqliteTransaction) -> NoReturn:
        raise error

    return Job(fail)


def stored(file: LogFile) -> list[str]:
    with file.reading() as connection:
        return [consumer for (consumer,) in connection.execute("SELECT consumer FROM groups ORDER BY consumer")]


def test_an_event_that_was_stored_before_the_disk_failed_is_not_reported_as_refused(parts: Parts) -> None:
    jobs = [storing("a"), failing(ValueError("impossible")), storing("b"), failing(apsw.IOError("gone")), storing("c")]
    with pytest.raises(LogUnavailableError) as caught:
        parts.committer.commit(lambda: jobs)
    for job in jobs:
        job.finish(caught.value)
    outcomes = [None if job.error is None else str(job.error) for job in jobs]
    assert outcomes == [None, "cannot be written: impossible", *["IOError: gone"] * 3]
    assert stored(parts.file) == ["a"]


def test_a_refused_body_that_cannot_be_stored_hurts_no_event_and_is_dropped(
    parts: Parts,
) -> None:
    parts.buffer.reject(Reject(1 << 63, "invalid_text", "received far in the future", Source.WEBHOOK, b""))
    jobs = [storing("a"), failing(apsw.TooBigError("too big")), storing("b")]
    with capture_logs() as logs:
        parts.committer.commit(lambda: jobs)
    assert [None if job.error is None else str(job.error) for job in jobs] == [None, "cannot be written: too big", None]
    assert isinstance(jobs[1].error, UnstorableError)
    assert (stored(parts.file), parts.buffer.rejects(), parts.committer.failure) == (["a", "b"], [], None)
    assert "value_not_stored" in [each["code"] for each in logs]


def test_a_file_that_cannot_be_opened_again_is_reported(parts: Parts) -> None:
    with closing(apsw.Connection(str(parts.file.path))) as other:
        other.execute("PRAGMA user_version=99")
    parts.file.distrust(OSError())
    for _ in range(2):
        with pytest.raises(LogUnavailableError, match="schema version 99"):
            parts.committer.commit(lambda: [storing("a")])
        assert "schema version 99" in str(parts.committer.failure)


def test_an_event_in_a_slow_commit_gets_the_answer_that_its_storage_is_unknown(parts: Parts) -> None:
    answered = FileLock(parts.file.path.with_name("other.lock"))
    disk = FileLock(parts.file.path.with_name("other.lock"))

    def commit_slowly(take: object) -> None:
        jobs: Sequence[Job[Appended]] = take()  # type: ignore[operator]
        with disk:
            parts.committer.commit(lambda: jobs)

    writer = Writer(commit_slowly, afterwards=lambda: None, idle_work=lambda: False, patience_s=0.2)
    with answered:
        job = writer.begin(storing("late").work)
        with pytest.raises(UnconfirmedError, match="the disk does not answer"):
            job.wait()
        assert not job.withdraw()
    job.wait()
    assert job.stored
    assert stored(parts.file) == ["late"]
    writer.stop()
    answered.close()
    disk.close()


def test_waiting_events_are_answered_before_the_checkpoint(parts: Parts) -> None:
    gate = FileLock(parts.file.path.with_name("gate.lock"))
    held = FileLock(parts.file.path.with_name("gate.lock"))

    def checkpoint() -> None:
        with held:
            Checkpointer(parts.file, parts.lock).run()

    writer = Writer(parts.committer.commit, afterwards=checkpoint, idle_work=lambda: False)
    with gate:
        writer.begin(storing("large", 5 << 20).work).wait()
        assert parts.file.path.stat().st_size < 1 << 20
    wait_for(lambda: parts.file.path.stat().st_size > 5 << 20)
    writer.stop()
    gate.close()
    held.close()


def test_a_write_ahead_log_that_cannot_be_emptied_is_logged_once_a_minute(
    parts: Parts,
) -> None:
    now = [0.0]
    checkpointer = Checkpointer(parts.file, parts.lock, seconds=lambda: now[0])
    reader = apsw.Connection(str(parts.file.path))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM log").fetchall()
    with capture_logs() as logs:
        for second in (0, 1, 2, 3, 4, 62, 63):
            now[0] = second
            parts.committer.commit(partial(list, [storing(f"g{second}", 17 << 20)]))
            checkpointer.run()
    told = [(each["code"], each["mebibytes"], each["reason"], each["remedy"]) for each in logs]
    reason = "a program has an open read transaction on it"
    remedy = f"find who has the file open: fuser -v {parts.file.path}"
    assert told == [("wal_not_emptied", size, reason, remedy) for size in (68, 120)]
    reader.close()
    checkpointer.run()
    parts.committer.commit(lambda: [storing("after")])
    assert parts.file.wal_bytes() <= 64 << 20


def test_reads_of_karrot_never_block_a_checkpoint(tmp_path: Path) -> None:
    log = open_sqlite(tmp_path, ManualClock(), retention_ms=1)
    for number in range(1200):
        event = make_event(consumer=f"g{number}", extras=(("filler", "x" * 20_000),))
        log.append(event, to_wire(event))
    key = GroupKey("prod-eu", "g7")
    pages = log.changed(0)
    next(pages)
    reads: list[Callable[[], object]] = [
        lambda: log.read(0),
        lambda: log.recent([key])[0],
        lambda: log.event(1),
        log.live,
        lambda: next(pages),
        lambda: log.group(key),
        log.heard,
        lambda: log.cursor("stdout"),
        log.reporters,
        log.counters,
        log.rejects,
        log.expire,
        log.size,
    ]
    assert len(log.read(0)) < 500  # the loop ends early at eight megabytes
    outside = apsw.Connection(str(tmp_path / "events.db"))
    for read in reads:
        kept = read()
        assert outside.execute("PRAGMA wal_checkpoint(TRUNCATE)").get[0] == 0, kept
    outside.close()
    log.close()


@pytest.mark.parametrize(
    ("commit_s", "stalled"),
    [(2.0, [None] * 10), (7.0, ["a commit has waited for 7 s: the storage hangs"] * 10)],
    ids=["overloaded", "hangs"],
)
def test_a_commit_that_hangs_is_told_from_an_overload_in_which_every_commit_ends(
    commit_s: float, stalled: Sequence[str | None]
) -> None:
    clock, told = [0.0], list[str | None]()

    def commit(take: Take) -> None:
        for job in take():
            job.stored = True
        if len(told) == 10:
            return  # a commit of the idle writer, which ends in time
        clock[0] += commit_s
        told.append(writer.stalled())
        if len(told) < 10:
            jobs.append(writer.begin(lambda _transaction: None))  # arrives while the commit runs, and waits for its end

    jobs = list[Job[Any]]()
    writer = Writer(commit, afterwards=lambda: None, idle_work=lambda: False, seconds=lambda: clock[0])
    jobs.append(writer.begin(lambda _transaction: None))
    wait_for(lambda: len(told) == 10 and writer.stalled() is None)
    writer.stop()
    assert told == stalled


def test_between_two_commits_that_hang_the_log_is_not_writable_either() -> None:
    clock, lengths_s, told = [0.0], iter([7.0, 7.0]), list[str | None]()

    def commit(take: Take) -> None:
        for job in take():
            job.stored = True
        told.append(writer.stalled())
        clock[0] += next(lengths_s, 0.0)

    writer = Writer(commit, afterwards=lambda: None, idle_work=lambda: False, seconds=lambda: clock[0])
    writer.begin(lambda _transaction: None)
    wait_for(lambda: len(told) == 3 and writer.stalled() is None, timeout_s=20)
    writer.stop()
    assert told == [None, *["a commit has waited for 7 s: the storage hangs"] * 2]
