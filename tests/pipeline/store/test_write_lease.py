"""The contract of a lease, run for a local disk and for a file system of Hadoop."""

import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest
from pyspark.sql import SparkSession

from karrot.pipeline.store.table_files import OtherFormat, Tables
from karrot.pipeline.store.write_lease import (
    DERIVED,
    EVENTS,
    Holder,
    KernelLock,
    LeaseHeld,
    LeaseLost,
    offsets_lease,
    release_all,
    writing,
)
from support.manual_clock import ManualClock
from support.waiting import wait_for

both = pytest.mark.parametrize("directory", ["local", "cluster's file system"], indirect=True)
numbered = pytest.mark.parametrize("directory", ["cluster's file system"], indirect=True)


@pytest.fixture
def tables(directory: str) -> Tables:
    return Tables(f"{directory}/tables")


@both
def test_a_second_writer_ends_with_the_name_of_the_first(spark: SparkSession, tables: Tables) -> None:
    clock = ManualClock(wall=1_800_000_000_000)
    with (
        writing(spark, tables, EVENTS, "karrot pipeline run", clock=clock),
        pytest.raises(LeaseHeld) as refused,
        writing(spark, tables, EVENTS, "karrot pipeline run"),
    ):
        pytest.fail("two writers at a time")
    assert f"karrot pipeline run (process {os.getpid()} on " in str(refused.value)
    assert ", since 2027-01-15 08:00:00 UTC) is writing these tables" in str(refused.value)
    assert "--wait 10m" in str(refused.value)


def test_a_lease_whose_holder_does_not_fit_on_the_disk_is_free_again(tmp_path: Path) -> None:
    lock, limits = KernelLock(tmp_path / "lock"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            lock.take(Holder("ingest"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert KernelLock(tmp_path / "lock").take(Holder("ingest")) is None


@both
def test_writers_of_other_tables_do_not_wait_for_each_other(spark: SparkSession, tables: Tables) -> None:
    with ExitStack() as held:
        for name in (EVENTS, DERIVED, offsets_lease("a/b"), offsets_lease("c")):
            held.enter_context(writing(spark, tables, name, "a command"))


@both
def test_the_lease_is_free_after_a_writer_that_ends_or_fails(spark: SparkSession, tables: Tables) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), writing(spark, tables, EVENTS, "a command"):
            raise ZeroDivisionError
    with writing(spark, tables, EVENTS, "a command"):
        pass


@numbered
def test_the_lease_is_free_after_a_signal(spark: SparkSession, tables: Tables) -> None:
    with writing(spark, tables, EVENTS, "a command"):
        release_all()
        with writing(spark, tables, EVENTS, "another command"):
            pass


@both
def test_a_second_writer_can_wait_for_the_first(spark: SparkSession, tables: Tables) -> None:
    order, waits = list[str](), Event()

    def second() -> None:
        waits.set()
        with writing(spark, tables, EVENTS, "second", wait=timedelta(minutes=2)):
            order.append("second writes")

    with writing(spark, tables, EVENTS, "first"):
        thread = Thread(target=second)
        thread.start()
        waits.wait()
        order.append("first ends")
    thread.join()
    assert order == ["first ends", "second writes"]


@both
def test_tables_of_a_newer_karrot_are_not_written(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    with writing(spark, tables, EVENTS, "a command"):
        pass
    mark = tmp_path / "tables" / "_format.json"
    assert mark.read_text() == '{"format":2}'
    (tmp_path / "tables" / "._format.json.crc").unlink(missing_ok=True)
    mark.write_text('{"format":3}')
    with pytest.raises(OtherFormat, match="has tables of format 3"), writing(spark, tables, EVENTS, "a command"):
        pytest.fail("the tables are of another version")


def _hold(path: Path, ready: "multiprocessing.synchronize.Event") -> None:
    KernelLock(path).take(Holder("karrot pipeline run", "here", os.getpid()))
    ready.set()
    signal.pause()


@contextmanager
def _other_process(target: Callable[..., None], path: Path) -> Iterator[int]:
    """Run the target in a process until it is ready, and kill it at the end. Yield the id of the process."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=target, args=(path, ready))
    process.start()
    assert ready.wait(60)
    yield process.pid or 0
    process.kill()
    process.join()


def test_the_local_lease_of_a_killed_process_ends_at_once(tmp_path: Path) -> None:
    lock, mine = KernelLock(tmp_path / "events"), Holder("karrot pipeline run", "here", 1)
    with _other_process(_hold, tmp_path / "events") as pid:
        assert lock.take(mine) == Holder("karrot pipeline run", "here", pid)
    assert lock.take(mine) is None
    lock.release(mine)


def _age(tmp_path: Path, seconds: float) -> None:
    """Make the newest file of the lease older, as if nobody had renewed it."""
    newest = max((tmp_path / "tables" / "_leases").glob("events-*.json"))
    then = newest.stat().st_mtime - seconds
    os.utime(newest, (then, then))


@numbered
def test_a_lease_that_nobody_renews_ends(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    with writing(spark, tables, EVENTS, "first") as first:
        _age(tmp_path, 20)
        with pytest.raises(LeaseHeld, match="its lease ends within 60 s"), writing(spark, tables, EVENTS, "second"):
            pytest.fail("the lease has 40 seconds left")
        _age(tmp_path, 41)
        with writing(spark, tables, EVENTS, "second"):
            first.require()  # it has not noticed yet


@numbered
def test_a_writer_that_slept_too_long_writes_nothing_more(spark: SparkSession, tables: Tables) -> None:
    clock = ManualClock()
    with writing(spark, tables, EVENTS, "a command", clock=clock) as leased:
        leased.require()
        clock.advance(61_000)
        with pytest.raises(LeaseLost, match=r"was not renewed for 61 s; nothing more was written. Run the command"):
            leased.require()


@numbered
def test_a_writer_whose_lease_was_taken_writes_nothing_more(
    spark: SparkSession, tables: Tables, tmp_path: Path
) -> None:
    def is_lost() -> bool:
        try:
            leased.require()
        except LeaseLost as lost:
            return str(lost).startswith("second (process 7 on there, since now) has taken the lease of viewfs://")
        return False

    with writing(spark, tables, EVENTS, "first", renew_every=timedelta(seconds=0.1)) as leased:
        taken = msgspec.json.encode(Holder("second", "there", 7, "now", "its token"))
        (tmp_path / "tables" / "_leases" / "events-000000000099.json").write_bytes(taken)
        wait_for(is_lost)
    with pytest.raises(LeaseHeld, match="second"), writing(spark, tables, EVENTS, "first"):
        pytest.fail("second has the lease")


@numbered
def test_a_wrong_clock_neither_frees_nor_prolongs_a_lease(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    for hour in (-3_600_000, 3_600_000):
        wrong = ManualClock()
        wrong.jump(hour)
        with writing(spark, tables, EVENTS, "first", clock=wrong):
            with pytest.raises(LeaseHeld), writing(spark, tables, EVENTS, "second"):
                pytest.fail("the lease is new")
            _age(tmp_path, 61)
            with writing(spark, tables, EVENTS, "second"):
                pass


@numbered
def test_a_renewed_lease_is_new_again(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    with writing(spark, tables, EVENTS, "first", renew_every=timedelta(seconds=0.1)) as first:
        leases = tmp_path / "tables" / "_leases"
        wait_for(lambda: int(max(leases.glob("events-*.json")).stem.removeprefix("events-")) > 5)
        first.require()
    assert len([*leases.glob("events-*.json")]) == 1
