"""Servers end with the process that started them. The tests need no real server."""

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.stack.processes import NotStarted, Servers, wait_until
from support.waiting import wait_for

STARTS_ONE = """
import sys
from pathlib import Path
from e2e.stack.processes import Servers
servers = Servers(Path(sys.argv[1]))
print(servers.start("sleep", ["sh", "-c", "echo awake; exec sleep 600"]).pid, flush=True)
sys.stdin.read()
"""


def test_a_server_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_ONE, str(tmp_path)]
    paths = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    with subprocess.Popen(command, env=paths, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        # Only its first output proves that the kernel knows to kill it.
        wait_for(lambda: "awake" in (tmp_path / "sleep.log").read_text())
        starter.send_signal(signal.SIGKILL)
    wait_for(lambda: not runs(pid))


def test_leaving_the_block_ends_every_server_with_its_children_and_keeps_its_log(tmp_path: Path) -> None:
    with Servers(tmp_path) as servers:
        pids = [servers.start(name, ["sh", "-c", f"echo here is {name}; sleep 600"]).pid for name in ("one", "two")]
        wait_for(lambda: all("here is" in each.tail() for each in servers))
        wait_for(lambda: all(len(group(pid)) == 2 for pid in pids))  # the shell and its sleep
    wait_for(lambda: not any(map(group, pids)))
    assert (tmp_path / "two.log").read_text() == "here is two\n"


def test_waiting_for_a_server_that_ended_fails_at_once_and_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match="short ended with 3 before it answers") as failure:
        wait_in_vain_for(["sh", "-c", "echo no such thing; exit 3"], tmp_path)
    [note] = failure.value.__notes__
    assert note == f"--- short (ended with 3), the end of {tmp_path / 'short.log'}:\nno such thing"


def wait_in_vain_for(command: list[str], directory: Path, within_s: float = 60) -> None:
    with Servers(directory) as servers:
        wait_until(lambda: False, [servers.start("short", command)], what="it answers", within_s=within_s)


def runs(pid: int) -> bool:
    """Return whether the process runs. An ended process does not run, even if its parent has not waited for it."""
    return pid in group(pid)


def group(leader: int) -> list[int]:
    """Return the running processes of a process group."""
    running = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has just ended
            state, _parent, group = stat.read_text().rsplit(")", 1)[1].split()[:3]
            if int(group) == leader and state != "Z":
                running.append(int(stat.parent.name))
    return running
