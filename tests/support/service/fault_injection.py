"""System calls of a running service that fail on command."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.waiting import wait_for

__all__ = ["inject_fault", "skip_without_strace"]


def skip_without_strace() -> None:
    """Skip where no strace is, or where it may not attach to a process."""
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
    """Let ``calls`` of these processes fail or take time, as strace's ``inject`` says it.

    ``error=EIO:when=3+5`` fails each thread's third call and then each fifth; ``delay_enter=`` is in microseconds.
    """
    targets = [word for pid in pids for word in ("-p", str(pid))]
    rule = ["-e", f"trace={calls}", "-e", f"inject={calls}:{fault}"]
    strace = subprocess.Popen(["strace", "-f", "-qq", "-o", os.devnull, *rule, *targets])
    try:
        wait_for(lambda: all(_tracers(pid) == {strace.pid} for pid in pids))
        yield
    finally:
        strace.send_signal(signal.SIGTERM)  # it detaches and leaves the processes as they are
        strace.wait(20)


def _tracers(pid: int) -> set[int]:
    """Who traces the threads of a process."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        found.add(int(status.partition("TracerPid:")[2].split()[0]))
    return found
