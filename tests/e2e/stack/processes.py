"""Servers as child processes that end with the process that started them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_ASK_AGAIN_S = 0.05
_LINES_OF_A_LOG = 25


class NotStarted(Exception):  # noqa: N818 - the name is the message
    """A server did not start; the notes of the error are the ends of the logs."""


class Server:
    """One program and the processes it starts, as one process group. Their output goes to ``log``.

    The group has its own session, so Ctrl-C reaches it only through us. The kernel kills the program when the thread
    that started it ends, so start servers from the main thread. The kernel kills only the program, not the processes
    that the program started.
    """

    def __init__(self, name: str, command: Sequence[str | Path], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, or None while the program runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int:
        return self._process.wait(timeout_s)

    def stop(self, grace_s: float = 10) -> None:
        """Ask the program to end. Kill the rest of the group when the program has ended, or after ``grace_s``."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        """Kill the whole group with ``kill -9``. Killing only a shell would leave the command that it waits for."""
        with suppress(ProcessLookupError):  # the program and all its processes have ended
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the group: SIGSTOP makes the server hang, SIGCONT ends that."""
        self._process.send_signal(number)

    def tail(self) -> str:
        """Return the end of the server's log."""
        lines = self.log.read_text(errors="replace").splitlines()
        state = "still runs" if self.exit_code is None else f"ended with {self.exit_code}"
        return "\n".join([f"--- {self.name} ({state}), the end of {self.log}:", *lines[-_LINES_OF_A_LOG:]])


class Servers:
    """All started servers, by name. When the ``with`` block ends, for any reason, no process of a server still runs.

    The logs are in ``directory`` and stay there. An error that leaves the block gets the ends of the logs as a note.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._servers: dict[str, Server] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, NotStarted):
            error.add_note(self.tails())
        self.kill()

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers.values())

    def start(self, name: str, command: Sequence[str | Path]) -> Server:
        """Start a server under a name; it replaces an earlier server of that name."""
        self.directory.mkdir(parents=True, exist_ok=True)
        server = self._servers[name] = Server(name, command, self.directory / f"{name}.log")
        return server

    def kill(self) -> None:
        """Kill all servers, the newest first.

        A clean stop has no use: their data are thrown away, and brokers would wait for each other without result.
        """
        for server in reversed(self._servers.values()):
            server.kill()

    def tails(self) -> str:
        return "\n".join(server.tail() for server in self._servers.values())


def wait_until(true: Callable[[], bool], servers: Iterable[Server], *, what: str, within_s: float = 120) -> None:
    """Check a condition until it is true.

    Raises `NotStarted` if that takes too long, or if one of the servers that it depends on has ended.
    """
    deadline = time.monotonic() + within_s
    while not true():
        for server in servers:
            if server.exit_code is not None:
                raise NotStarted(f"{server.name} ended with {server.exit_code} before {what}")
        if time.monotonic() > deadline:
            raise NotStarted(f"{what}: not so after {within_s:g} s")
        time.sleep(_ASK_AGAIN_S)
