"""Posts events to a running service from threads, and lists the acknowledged ones."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Protocol, Self

from support.burrow.recorded_bodies import warn_body
from support.service.karrot_service import Service
from support.waiting import wait_for


def _connect(port: int) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", port, timeout=20)


class HasPort(Protocol):
    """A service, or a proxy in front of several."""

    @property
    def port(self) -> int: ...


class PostingThreads:
    """Threads that post events, each with its own name, and record the acknowledged ones.

    ``connect`` opens a connection, over which a thread posts ``posts`` times. ``headers`` are asked for each post.
    """

    def __init__(
        self,
        service: HasPort,
        threads: int = 4,
        *,
        connect: Callable[[int], HTTPConnection] = _connect,
        posts: int = sys.maxsize,
        headers: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self.service = service
        self._connect = connect
        self._posts = posts
        self._headers = headers
        self.acknowledged: list[str] = []
        self.answers: Counter[int] = Counter()
        self.broken = 0
        self._answered = [0] * threads
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._post, args=(number,)) for number in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def reach(self, more: int, status: int = 202) -> None:
        """Wait for this number of further answers with this status."""
        goal = self.answers[status] + more
        wait_for(lambda: self.answers[status] >= goal, 60)

    def reach_each(self) -> None:
        """Wait until every thread has an answer to a request that it began after this call."""
        goals = [count + 2 for count in self._answered]
        wait_for(lambda: all(count >= goal for count, goal in zip(self._answered, goals, strict=True)), 60)

    def _post(self, number: int) -> None:
        count = 0
        while not self._stop.is_set():
            with closing(self._connect(self.service.port)) as connection:
                try:
                    for _ in range(self._posts):
                        if self._stop.is_set():
                            break
                        count += 1
                        name = f"{number}-{count}"
                        connection.request("POST", "/burrow", warn_body(name), self._headers())
                        response = connection.getresponse()
                        response.read()
                        if response.status == 202:
                            self.acknowledged.append(name)
                        self.answers[response.status] += 1
                        self._answered[number] += 1
                except (OSError, HTTPException):
                    self.broken += 1
                    self._stop.wait(0.02)


def assert_nothing_is_lost(service: Service, load: PostingThreads, *, refusals: Collection[int] = (503,)) -> None:
    """Assert that every acknowledged event is stored, none twice. All other answers must be among the refusals."""
    stored = service.stored_consumers()
    assert set(load.acknowledged) <= set(stored)
    assert set(stored.values()) <= {1}
    assert set(load.answers) <= {202, *refusals}
