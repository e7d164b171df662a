"""Repeats a piece of work at an interval during a measurement."""

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self


class PeriodicWork:
    """Calls ``work`` at once and at an interval in seconds, in another thread, until the block ends."""

    def __init__(self, work: Callable[[], object], every_s: float) -> None:
        self._work = work
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += self._every_s
            self._work()


class PeriodicCurl(PeriodicWork):
    """GETs a URL with ``curl``, which takes no time from this process."""

    def __init__(self, port: int, path: str, every_s: float, *options: str) -> None:
        super().__init__(self._get, every_s)
        self.took_s: list[float] = []
        self.statuses: Counter[str] = Counter()
        write = "%{http_code} %{time_total}"
        self._command = ["curl", "-s", "-o", "/dev/null", "-w", write, *options, f"http://127.0.0.1:{port}{path}"]

    def _get(self) -> None:
        status, took = command_output(self._command).split()
        self.statuses[status] += 1
        self.took_s.append(float(took))


def command_output(command: list[str]) -> str:
    """Return the output of a command. Raises `subprocess.CalledProcessError` if it fails."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
