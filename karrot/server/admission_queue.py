"""Queues the requests that carry events, oldest first, and refuses requests that waited too long for their turn."""

import time
from collections import deque
from collections.abc import Callable

from karrot.server.connection import Connection
from karrot.server.request_completeness import RequestHead

_SLICE_S = 0.01
"""The queue serves requests for this many seconds. Then the event loop reads new requests."""

_MOST = 3072
_FIRST_GUESS = (0.01, 40.0)
"""At the start, the queue assumes that it served 40 requests in 0.01 s. A time that is too short does less harm than
one that is too long, because the queue can still refuse a request later."""

_REMEMBERED = 1000


class AdmissionQueue:
    """Serves events in slices of time. Refuses a request that has waited ``patience_s``, or that is expected to.

    ``serve(conn, head, since)`` takes some hundred microseconds. ``refuse(conn, head)`` takes a fraction of that time.
    """

    def __init__(
        self,
        serve: Callable[[Connection, RequestHead, float], object],
        refuse: Callable[[Connection, RequestHead], object],
        *,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._serve = serve
        self._refuse = refuse
        self._patience_s = patience_s
        self._clock = clock
        self._waiting: deque[tuple[Connection, RequestHead, float]] = deque()
        self._took_s, self._turns = _FIRST_GUESS

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def join(self, conn: Connection, head: RequestHead, since: float) -> None:
        """Queue a request that arrived at ``since`` (by the queue's clock), or refuse the request at once."""
        ahead = len(self._waiting)
        if ahead >= _MOST or ahead * self._took_s > self._patience_s * self._turns:
            self._refuse(conn, head)
        else:
            self._waiting.append((conn, head, since))

    def give(self) -> None:
        """Serve the oldest requests for one slice of time."""
        started = now = self._clock()
        served = 0
        while self._waiting and now - started < _SLICE_S:
            conn, head, since = self._waiting.popleft()
            if now - since > self._patience_s:
                self._refuse(conn, head)
            else:
                self._serve(conn, head, since)
                served += 1
            now = self._clock()
        fade = 0.5 if self._turns > _REMEMBERED else 1.0
        self._took_s = self._took_s * fade + (now - started)
        self._turns = self._turns * fade + served
