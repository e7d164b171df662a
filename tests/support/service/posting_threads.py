"""Posts events to a running service from threads, and lists the acknowledged ones."""

import threading
from collections import Counter
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Self

from support.burrow.recorded_bodies import warn_body
from support.service.karrot_service import Service
from support.waiting import wait_for


class PostingThreads:
    """Threads that post events, each with its own name, and record the acknowledged ones."""

    def __init__(self, service: Service, threads: int = 4) -> None:
        self.service = service
        self.acknowledged: list[str] = []
        self.answers: Counter[int] = Counter()
        self.broken = 0
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

    def _post(self, number: int) -> None:
        count = 0
        while not self._stop.is_set():
            with closing(HTTPConnection("127.0.0.1", self.service.port, timeout=20)) as connection:
                try:
                    while not self._stop.is_set():
                        count += 1
                        name = f"{number}-{count}"
                        connection.request("POST", "/burrow", warn_body(name))
                        response = connection.getresponse()
                        response.read()
                        if response.status == 202:
                            self.acknowledged.append(name)
                        self.answers[response.status] += 1
                except (OSError, HTTPException):
                    self.broken += 1
                    self._stop.wait(0.02)


def assert_nothing_is_lost(service: Service, load: PostingThreads) -> None:
    """Assert that every acknowledged event is stored, none twice, and that all answers were 202 or 503."""
    stored = service.stored_consumers()
    assert set(load.acknowledged) <= set(stored)
    assert set(stored.values()) <= {1}
    assert set(load.answers) <= {202, 503}
