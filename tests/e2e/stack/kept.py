"""A stack that stays up between two commands; a background process, the keeper, holds it."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from e2e.stack.burrow import NO_BURROW, burrow_binary, karrot_notifier
from e2e.stack.downloads import Downloads
from e2e.stack.stack import Parts, Stack, running
from support.waiting import wait_for

_STOP_S = 30


class StackIsUp(Exception):  # noqa: N818 - the name is the message
    """Another stack is up already."""


class Kept:
    """The stack of a cache. The keeper holds a lock; a file has the stack's addresses while the stack answers."""

    def __init__(self, downloads: Downloads) -> None:
        self._downloads = downloads
        self._lock = downloads.cache / "kept.lock"
        self._directory = downloads.cache / "kept"
        self._pid = self._directory / "pid"
        self._addresses = self._directory / "addresses"

    def up(self, parts: Parts, karrot_port: int) -> bool:
        """Start the keeper, pass on its output until the output ends, and return whether there is a stack."""
        command = [sys.executable, "-m", "e2e.stack", "keep", "--brokers", str(parts.brokers)]
        command += ["--kafka", parts.kafka_version, "--karrot-port", str(karrot_port)]
        keeper = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        assert keeper.stdout is not None
        for line in keeper.stdout:
            sys.stdout.write(line)
        return self._addresses.exists() and self._pid.read_text() == str(keeper.pid)

    def keep(self, parts: Parts, karrot_port: int) -> None:
        """Be the keeper until SIGTERM. The servers end with this process, whatever the cause."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with self._locked():
            shutil.rmtree(
                self._directory, ignore_errors=True
            )  # not at the end, because somebody may want to read the logs
            self._directory.mkdir()
            self._pid.write_text(str(os.getpid()))
            with running(parts, self._directory, self._downloads) as stack:
                self._tell(_addresses(stack, self._directory, karrot_port))
                signal.pause()

    def down(self) -> bool:
        """End the stack and wait until it has ended; return False if there was none."""
        try:
            with self._locked():
                return False
        except StackIsUp:
            os.kill(int(self._pid.read_text()), signal.SIGTERM)
        wait_for(self._is_free, _STOP_S)
        return True

    def _tell(self, addresses: str) -> None:
        """Print a line for the process that started this one; that process may end afterwards."""
        self._addresses.write_text(addresses)
        print(addresses, end="", flush=True)  # noqa: T201 - the keeper's only way to report
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
            os.dup2(nowhere.fileno(), sys.stderr.fileno())

    def _is_free(self) -> bool:
        with suppress(StackIsUp), self._locked():
            return True
        return False

    @contextmanager
    def _locked(self) -> Iterator[TextIOWrapper]:
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackIsUp(f"a stack is up; its addresses are in {self._addresses}") from None
            yield lock


def _addresses(stack: Stack, directory: Path, karrot_port: int) -> str:
    """Return lines for a shell. Prometheus scrapes a Karrot on that port, and Burrow posts to it if there is one."""
    stack.prometheus.scrape("karrot", karrot_port)
    found = {
        "KAFKA_BOOTSTRAP": stack.kafka.bootstrap,
        "ZOOKEEPER": stack.zookeeper.address,
        "PROMETHEUS_URL": stack.prometheus.url,
    }
    lines = [f"{name}={address}" for name, address in found.items()]
    return "\n".join([*lines, _burrow(stack, directory, karrot_port), f"# logs: {stack.servers.directory}", ""])


def _burrow(stack: Stack, directory: Path, karrot_port: int) -> str:
    binary = burrow_binary()
    if binary is None:
        return f"# no BURROW_URL: {NO_BURROW}"
    notifier = karrot_notifier(f"http://127.0.0.1:{karrot_port}/burrow", directory / "notifier")
    burrow = stack.burrow(binary, notifiers=notifier)
    stack.prometheus.scrape("burrow", burrow.port)
    return f"BURROW_URL={burrow.url}"
