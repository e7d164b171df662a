"""Servers as processes of their own, which do not outlive the one that started them."""

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
    """Something did not come up; its notes are the tails of the logs."""


class Server:
    """One program and the processes it starts, as one process group. What they print goes to ``log``.

    The group has a session of its own, so Ctrl-C reaches it only through us. The kernel kills the program when the
    thread that started it ends: start servers from the main thread. The kernel does that to the program alone, not to
    the processes that the program started.
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
        """None as long as it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int:
        return self._process.wait(timeout_s)

    def stop(self, grace_s: float = 10) -> None:
        """Ask the program to end. Kill what is left of the group after that, or after ``grace_s``."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        """``kill -9`` for the whole group: a shell that is killed alone leaves the command that it waits for."""
        with suppress(ProcessLookupError):  # the program has ended, and it left nothing
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT make a server that hangs."""
        self._process.send_signal(number)

    def tail(self) -> str:
        """The end of what it said."""
        lines = self.log.read_text(errors="replace").splitlines()
        state = "still runs" if self.exit_code is None else f"ended with {self.exit_code}"
        return "\n".join([f"--- {self.name} ({state}), the end of {self.log}:", *lines[-_LINES_OF_A_LOG:]])


class Servers:
    """All that was started, by name. On leaving, for any reason, no process of any server is left running.

    Their logs are in ``directory`` and stay there. An error that passes through gets their tails as a note.
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
        """A server of that name, in the place of one that had it before."""
        self.directory.mkdir(parents=True, exist_ok=True)
        server = self._servers[name] = Server(name, command, self.directory / f"{name}.log")
        return server

    def kill(self) -> None:
        """By force, the newest first: what they stored is thrown away, and brokers wait for each other in vain."""
        for server in reversed(self._servers.values()):
            server.kill()

    def tails(self) -> str:
        return "\n".join(server.tail() for server in self._servers.values())


def wait_until(true: Callable[[], bool], servers: Iterable[Server], *, what: str, within_s: float = 120) -> None:
    """Ask until it is true; `NotStarted` if it is not in time, or if one of the servers it depends on has ended."""
    deadline = time.monotonic() + within_s
    while not true():
        for server in servers:
            if server.exit_code is not None:
                raise NotStarted(f"{server.name} ended with {server.exit_code} before {what}")
        if time.monotonic() > deadline:
            raise NotStarted(f"{what}: not so after {within_s:g} s")
        time.sleep(_ASK_AGAIN_S)
