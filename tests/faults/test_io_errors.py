"""On a failing disk an event that was not flushed is not acknowledged, and acknowledged events stay."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.burrow.recorded_bodies import warn_body
from support.service.karrot_service import Service
from support.waiting import wait_for


def skip_without_strace() -> None:
    """Skip the test if strace is missing or may not attach to a process."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace (Debian: apt-get install strace)")
    child = subprocess.Popen(["sleep", "60"])
    try:
        attached = subprocess.run(
            ["timeout", "-s", "INT", "0.3", "strace", "-p", str(child.pid)], check=False, capture_output=True, text=True
        )
    finally:
        child.kill()
        child.wait()
    if "attached" not in attached.stderr:
        pytest.skip(f"needs strace, which may not attach to a process here: {attached.stderr.strip()}")


@contextmanager
def inject_fault(pids: Sequence[int], calls: str, fault: str) -> Iterator[None]:
    """Make system calls of these processes fail or take time, in the syntax of strace's ``inject``.

    ``error=EIO:when=3+5`` fails each thread's third call and then every fifth; ``delay_enter=`` is in microseconds.
    """
    targets = [word for pid in pids for word in ("-p", str(pid))]
    rule = ["-e", f"trace={calls}", "-e", f"inject={calls}:{fault}"]
    strace = subprocess.Popen(["strace", "-f", "-qq", "-o", os.devnull, *rule, *targets])
    try:
        wait_for(lambda: all(_tracers(pid) == {strace.pid} for pid in pids))
        yield
    finally:
        strace.send_signal(signal.SIGTERM)  # strace detaches and leaves the processes running
        strace.wait(20)


def _tracers(pid: int) -> set[int]:
    """Return the ids of the processes that trace the threads of a process."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        found.add(int(status.partition("TracerPid:")[2].split()[0]))
    return found


FLUSH = "fsync,fdatasync"
STALL_S = 60
"""Longer than `Service.request` waits for an answer: every answer comes before the stall ends."""


@pytest.fixture(autouse=True, scope="module")
def _strace() -> None:
    skip_without_strace()


def both_workers(service: Service) -> list[int]:
    """Wait for both workers, because the first may answer before the second has started."""
    wait_for(lambda: len(service.workers()) == 2)
    return service.workers()


@pytest.mark.parametrize("calls", [FLUSH, "pwrite64"])
def test_a_disk_that_always_fails_is_reported_and_its_recovery_needs_no_restart(tmp_path: Path, calls: str) -> None:
    # One worker: each worker reports only from its own commits whether the log is writable.
    with Service(tmp_path / "data", workers="1") as service:
        for number in range(20):
            assert service.post(warn_body(f"g{number}")).status == 202
        with inject_fault(service.workers(), calls, "error=EIO:when=1+1"):
            assert {service.post(warn_body("during")).status for _ in range(20)} == {503}
            wait_for(lambda: service.metric("karrot_log_writable") == 0)
            assert service.get("/readyz").status == 503
            assert service.get("/api/v1/groups").status == 200
            assert service.metric("karrot_consumer_lag", consumer="g19") == 11_020
        wait_for(lambda: service.post(warn_body("after")).status == 202)
        wait_for(lambda: service.metric("karrot_log_writable") == 1)
        wait_for(lambda: (service.metric("karrot_events_rejected_total", code="log_unavailable") or 0) >= 20)
    assert set(service.stored_consumers()) >= {*(f"g{number}" for number in range(20)), "after"}


def refusal(service: Service, consumer: str) -> tuple[str, str]:
    """Post an event that is refused; return its name and the code of the answer."""
    answer = service.post(warn_body(consumer))
    assert answer.status == 503
    return consumer, answer.json["code"]


def test_no_answer_waits_for_a_stalled_disk(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service, ThreadPoolExecutor(12) as pool:
        assert service.post(warn_body("before")).status == 202
        with inject_fault(both_workers(service), FLUSH, f"delay_enter={STALL_S}000000:when=1+1"):
            posts = [pool.submit(refusal, service, f"during-{number}") for number in range(12)]
            while not all(post.done() for post in posts):
                assert service.metric("karrot_consumer_lag", consumer="before") == 11_020
            wait_for(lambda: service.get("/readyz").status == 503)
            wait_for(lambda: service.metric("karrot_log_writable") == 0)
            answers = dict(post.result() for post in posts)
            # The stalled commit may contain only counters; then no event is in a commit yet.
            assert set(answers.values()) <= {"overloaded", "unconfirmed"}
        wait_for(lambda: service.post(warn_body("after")).status == 202)
        wait_for(service.ready)
        unconfirmed = {name for name, code in answers.items() if code == "unconfirmed"}
        wait_for(lambda: service.metric("karrot_events_rejected_total", code="unconfirmed") == len(unconfirmed))
        assert service.stop() == 0
    # An event that was answered as not stored is not stored; the state of the other events was unknown.
    assert set(service.stored_consumers()) - unconfirmed == {"before", "after"}
