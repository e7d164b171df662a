"""Refreshes a page like many browsers, from another process, during a measurement."""

import time
from collections import Counter
from http.client import HTTPConnection
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

_SPAWN = get_context("spawn")
_HEADERS = {"Accept": "text/html", "Accept-Encoding": "gzip"}

Look = tuple[int, float]
"""The status of an answer, and the seconds until it arrived."""


class BrowserLoad:
    """Browsers that take turns; each one refreshes every ``refresh_s`` on its own reused connection.

    They run in another process, so that they take no time from the measuring one, like browsers on other machines.
    """

    def __init__(self, port: int, browsers: int, refresh_s: float) -> None:
        self._over = _SPAWN.Event()
        self._looks: SimpleQueue[list[Look]] = _SPAWN.SimpleQueue()
        asked = (port, browsers, refresh_s, self._over, self._looks)
        self._process = _SPAWN.Process(target=_refresh, args=asked, daemon=True)
        self.took_s: list[float] = []
        self.statuses: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        looks: list[Look] = self._looks.get()
        self._process.join()
        self.took_s = [took for _, took in looks]
        self.statuses = Counter(str(status) for status, _ in looks)


def _refresh(port: int, browsers: int, refresh_s: float, over: Event, told: "SimpleQueue[list[Look]]") -> None:
    connections = [HTTPConnection("127.0.0.1", port) for _ in range(browsers)]
    looks: list[Look] = []
    due = time.monotonic()
    while not over.wait(max(0.0, due - time.monotonic())):
        looks.append(_look(connections[len(looks) % browsers]))
        due += refresh_s / browsers
    told.put(looks)


def _look(connection: HTTPConnection) -> Look:
    began = time.perf_counter()
    connection.request("GET", "/", headers=_HEADERS)
    answer = connection.getresponse()
    answer.read()
    return answer.status, time.perf_counter() - began
