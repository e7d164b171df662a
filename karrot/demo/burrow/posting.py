"""Posts the fake Burrow's notifications over real HTTP, as Burrow's Go client does."""

import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import structlog

from karrot.clock import Clock
from karrot.demo.burrow.fake_burrow import FakeBurrow, Post

_log = structlog.get_logger(__name__)

_IDLE_CONNECTIONS = 2
_TIMEOUT_S = 5.0
_STALE_MS = 10_000
_SLICE_MS = 100


Sender = Callable[[bytes], int]
"""Sends one body and returns the HTTP status. Raises ``OSError`` or ``HTTPException`` if there was no answer."""


class HttpSender:
    """Burrow's HTTP notifier: it keeps two idle connections, opens more when these are busy, and never retries.

    There is one exception, as in Go: a request with an idempotency key is repeated on a new connection if a reused
    connection breaks. Several threads can use this class.
    """

    def __init__(
        self,
        url: str,
        *,
        idempotency_key: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connect: Callable[[], HTTPConnection] = lambda: kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"User-Agent": "Go-http-client/1.1", "Content-Type": "application/json"}
        if idempotency_key is not None:
            self._headers["Idempotency-Key"] = idempotency_key
        self._headers["Accept-Encoding"] = "gzip"
        self._may_repeat = idempotency_key is not None
        self._idle: list[HTTPConnection] = []
        self._lock = threading.Lock()

    def __call__(self, body: bytes, /) -> int:
        """Post one body. The answer's body is read and dropped, because Burrow ignores it."""
        connection = self._take_idle()
        if connection is not None:
            try:
                return self._exchange(connection, body)
            except ConnectionError:
                if not self._may_repeat:
                    raise
        return self._exchange(self._connect(), body)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _exchange(self, connection: HTTPConnection, body: bytes) -> int:
        is_kept = False
        try:
            connection.request("POST", self._target, body, self._headers)
            response = connection.getresponse()
            response.read()
            is_kept = not response.will_close and self._keep(connection)
            return response.status
        finally:
            if not is_kept:
                connection.close()

    def _take_idle(self) -> HTTPConnection | None:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not _was_closed(connection):
                    return connection
                connection.close()
        return None

    def _keep(self, connection: HTTPConnection) -> bool:
        with self._lock:
            if len(self._idle) >= _IDLE_CONNECTIONS:
                return False
            self._idle.append(connection)
            return True


def _was_closed(idle: HTTPConnection) -> bool:
    """Whether the server has closed an idle connection. Such a connection has nothing else to read."""
    poll = select.poll()
    poll.register(idle.sock, select.POLLIN)
    return bool(poll.poll(0))


@dataclass(slots=True)
class PostTally:
    """Counts the posts by outcome. ``skipped`` posts were due so long ago that they were not sent."""

    accepted: int = 0
    refused: int = 0
    failed: int = 0
    skipped: int = 0
    last_problem: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def answered(self, status: int) -> None:
        """Count an answer. A status other than 2xx is a refusal."""
        is_accepted = 200 <= status < 300  # noqa: PLR2004 (the HTTP class of success)
        with self._lock:
            self.accepted += is_accepted
            self.refused += not is_accepted
        self._log_change(None if is_accepted else f"HTTP {status}")

    def broke(self, error: Exception) -> None:
        """Count a post without an answer."""
        with self._lock:
            self.failed += 1
        self._log_change(f"{type(error).__name__}: {error}")

    def skip(self) -> None:
        """Count a post that is too late to be sent. Log the first one, because all later posts can be late too."""
        self.skipped += 1
        if self.skipped == 1:
            _log.warning(
                "the fake Burrow skips posts that are late",
                code="demo_late",
                remedy="if the machine was not asleep, use fewer groups or a lower speed",
            )

    def _log_change(self, problem: str | None) -> None:
        """Log a problem only when it changes. Burrow logs each failure, but this would fill the demo's output."""
        if problem != self.last_problem:
            self.last_problem = problem
            if problem:
                _log.warning("the fake Burrow's posts are not accepted", code="demo_refused", reason=problem)
            else:
                _log.info("the fake Burrow's posts are accepted")


def _due(burrow: FakeBurrow, since_ms: int, until_ms: int, stop: threading.Event) -> Iterator[Post]:
    """The due posts, in slices of time, so that each post comes soon after its evaluation. ``stop`` ends them."""
    for moment_ms in (*range(since_ms + _SLICE_MS, until_ms, _SLICE_MS), until_ms):
        for due in burrow.due(moment_ms):
            if stop.is_set():
                return
            yield due
        if stop.is_set():
            return


def run(
    burrow: FakeBurrow,
    send: Sender,
    stop: threading.Event,
    *,
    clock: Clock,
    failover: threading.Event | None = None,
    tally: PostTally | None = None,
    threads: int = 16,
    pause: float = 0.05,
) -> PostTally:
    """Post what is due until ``stop`` is set. Returns when the last post has ended.

    While all ``threads`` wait for answers, nothing new is evaluated, because a slow receiver slows a real Burrow too.
    If ``failover`` is set, another Burrow takes over once. Posts from a time when the machine was asleep are skipped.
    """
    tally = tally or PostTally()
    free = threading.BoundedSemaphore(threads)

    def post(due: Post) -> None:
        try:
            tally.answered(send(due.body))
        except (OSError, HTTPException) as error:
            tally.broke(error)
        finally:
            free.release()

    with ThreadPoolExecutor(threads, thread_name_prefix="fake-burrow") as pool:
        now_ms = clock.wall_ms()
        while not stop.wait(pause):
            if failover is not None and failover.is_set():
                failover.clear()
                burrow.failover()
            since_ms, now_ms = now_ms, clock.wall_ms()
            for due in _due(burrow, since_ms, now_ms, stop):
                if clock.wall_ms() - due.event.observed_at_ms > _STALE_MS:
                    tally.skip()
                    continue
                free.acquire()
                # Reading the result makes the pool log an unexpected exception.
                pool.submit(post, due).add_done_callback(Future.result)
    return tally
