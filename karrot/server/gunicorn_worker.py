"""Extends gunicorn's threaded worker. No thread waits for a client to send its request, and events need no thread.

gunicorn gives a connection to a thread at its first byte. So one incomplete request per thread blocks a whole worker:
in a measurement, 8 such requests blocked 2 workers with 4 threads each. In this worker, the event loop reads each
request until it is complete, with a time limit for the headers and one for the body. The loop serves events itself,
oldest first. The application hands an event to the log's writer, and the loop answers when the writer has committed it.
All other requests wait in a queue for a thread. The loop answers 503 to requests that waited too long. Pages, the API
and scrapes have their own threads, so a client that reads slowly delays only such requests.
"""

import contextlib
import gc
import queue
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from gunicorn import http
from gunicorn.sock import ssl_context
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, ThreadWorker

from karrot.eventlog.base import TURN_SHARE
from karrot.server import inline_wsgi
from karrot.server.admission_queue import AdmissionQueue
from karrot.server.connection import OVERLOADED, Connection, LingeringClose, Refusal
from karrot.server.inline_wsgi import PendingAnswers, WsgiAnswer
from karrot.server.request_completeness import RequestHead
from karrot.server.request_reading import ReadingCallbacks, RequestReading

T = TypeVar("T")

_TICK_S = 0.1
_ASLEEP_S = 0.005
_FEW, _MANY = 2, 512
_WEBHOOK = "/burrow"
_QUICK_PATHS = (_WEBHOOK, "/healthz", "/readyz", "/heartbeat")
_DRAIN_S = 0.05
_SWITCH_S = 0.0002
_COLLECT = (5000, 50, 10)
_SHARE = TURN_SHARE - 0.05
"""An event waits at most this share of the patience to be served. A commit must take it within `TURN_SHARE`."""


class Patience(NamedTuple):
    """The seconds that the worker waits for headers, for a body, and for a request's turn or thread.

    ``admits`` returns whether to wait for a request's body. The loop calls ``refused(head, code, detail)`` for each
    request that it refuses without a thread.
    """

    headers_s: float
    body_s: float
    thread_s: float
    admits: Callable[[RequestHead], bool]
    refused: Callable[[RequestHead, str, str], None]


class ThreadPool(Generic[T]):
    """A pool of ``threads`` threads that call ``work`` with each item, in the order of submission.

    ``work`` must not raise. The standard library's pool is a fifth slower, because it uses futures with locks.
    """

    def __init__(self, threads: int, work: Callable[[T], None], name: str) -> None:
        self._items: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._work = work
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, item: T) -> None:
        """Queue an item for a thread. Never blocks."""
        self._items.put(item)

    def shutdown(self, *, wait: bool = True) -> None:
        """End the threads once the queue is empty."""
        for _ in self._threads:
            self._items.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _run(self) -> None:
        while (item := self._items.get()) is not None:
            self._work(item)


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """The worker class that replaces ``gthread``. The application has its `Patience` as ``app.patience``."""

    alive: bool

    def init_process(self) -> None:
        """Create what the loop needs, then start the loop."""
        self.patience: Patience = self.app.patience
        self.tls = ssl_context(self.cfg) if self.cfg.is_ssl else None
        self.readers: ThreadPool[Connection] = ThreadPool(max(2, self.cfg.threads // 4), self._serve, "reader")
        self.queued: dict[Connection, tuple[float, RequestHead]] = {}
        self.served: deque[tuple[Connection, WsgiAnswer]] = deque()
        self.pending = PendingAnswers(self._deliver, self._answer, self._wake, patience_s=self.patience.thread_s)
        refuse = partial(self._answer, refusal=OVERLOADED)
        self.admission = AdmissionQueue(self._serve_here, refuse, patience_s=self.patience.thread_s * _SHARE)
        self.at_once = _FEW
        self.turn_began = self.since = time.monotonic()
        self.woken = False
        super().init_process()

    def run(self) -> None:
        """Run the loop. The poller and the application must exist before."""
        _put_events_first()
        self.lingering = LingeringClose(self.poller, self._close)
        self.reading = RequestReading(
            self.poller,
            self.patience.admits,
            ReadingCallbacks(self._dispatch, self._answer, self._close),
            headers_s=self.patience.headers_s,
            body_s=self.patience.body_s,
        )
        super().run()

    def get_thread_pool(self) -> "ThreadPool[Connection]":
        """The threads for large events and for health checks."""
        return ThreadPool(self.cfg.threads, self._serve, "quick")

    def accept(self, listener: Any) -> None:
        """Accept waiting connections. No thread works on them yet.

        A worker accepts 2 connections per turn, so that the other workers get their share. While more connections are
        waiting, it accepts four times as many in each further turn, up to 512, because they may have waited for long.
        """
        for _ in range(min(self.at_once, self.worker_connections - self.nr_conns)):
            try:
                client_sock, client_addr = listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                self.at_once = _FEW
                return
            self._welcome(listener, client_sock, client_addr)
        self.at_once = min(4 * self.at_once, _MANY)

    def _welcome(self, listener: Any, client_sock: Any, client_addr: Any) -> None:
        try:
            conn = Connection(self.cfg, client_sock, client_addr, listener.getsockname(), tls=self.tls)
        except OSError:
            client_sock.close()
            return
        self.nr_conns += 1
        self.reading.begin(conn)

    def enqueue_req(self, conn: Connection) -> None:
        """Start to read the next request of a connection. A part of the request may have been read already."""
        self.reading.begin(conn, conn.parser.unreader.take_buffered())

    def on_client_socket_readable(self, conn: Connection, client: Any) -> None:
        """Start to read the next request of a kept-alive connection."""
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        self.reading.begin(conn)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Wait for events, handle them, and enforce the deadlines that gunicorn does not know."""
        timed = self.reading or self.queued or self.lingering or self.pending
        select_began = time.monotonic()
        if timed:
            timeout = min(timeout, _TICK_S)
        events = self.poller.select(0 if self.admission else timeout)
        now = time.monotonic()
        # A request that arrives while the loop sleeps wakes the loop, so it arrived now. A request that arrived while
        # the loop worked may have arrived at any time since the start of the last turn.
        self.since = now if now - select_began > _ASLEEP_S else self.turn_began
        self.turn_began = now
        for key, _ in events:
            try:
                key.data(key.fileobj)
            except Exception:
                # The outermost loop: an error on one connection must not end the worker and all other connections.
                self.log.exception("an event on a connection could not be handled")
                if isinstance(key.fileobj, socket.socket) and key.fileobj not in self.sockets:
                    self._drop(key.fileobj)
            self.pending.settle()  # a turn can be long: answer stored events before its end
        self.admission.give()
        self._keep_deadlines(time.monotonic())

    def is_parent_alive(self) -> bool:
        """Whether gunicorn's parent process exists. Without it, the worker closes each connection after its answer.

        If the connections stayed open, they would keep a worker without a parent alive.
        """
        self.alive = bool(super().is_parent_alive()) and self.alive
        return self.alive

    def handle(self, conn: Connection) -> bool:
        """Serve one request in a thread. Return whether the connection can be used again."""
        req = None
        try:
            req = next(conn.parser)
            kept = bool(req) and self.handle_request(req, conn)
            return kept and bool(conn.parser.finish_body(deadline=time.monotonic() + _DRAIN_S))
        except (http.errors.NoMoreData, StopIteration):
            self.log.debug("connection closed by its client")
        except OSError as error:
            self.log.debug("connection lost: %s", type(error).__name__)
        except Exception as error:  # noqa: BLE001 - the outermost loop of a thread: gunicorn logs and answers it
            self.handle_error(req, conn.sock, conn.client, error)
        return False

    def _drop(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, KeyError, ValueError):
            self.poller.unregister(sock)
        self.lingering.drop(sock)
        self.reading.drop(sock)
        sock.close()

    def _serve(self, conn: Connection) -> None:
        """Serve a connection's request in a thread. If the loop has already refused the request, do nothing."""
        if self.queued.pop(conn, None) is None:
            return
        self._finish(conn, WsgiAnswer(b"", self.handle(conn)))

    def _serve_here(self, conn: Connection, head: RequestHead, since: float) -> None:
        """Serve an event in the loop. Its answer waits until the writer has committed the event."""
        self.pending.settle()
        kept = inline_wsgi.HeldAnswer(conn.sock)
        try:
            conn.hand_over(self.patience.body_s)
            answer = inline_wsgi.serve(conn, self.wsgi, kept, alive=self.alive)
        except Exception as error:  # noqa: BLE001 - the outermost loop around one request: gunicorn logs and answers it
            self.handle_error(None, kept, conn.client, error)
            answer = WsgiAnswer(bytes(kept.data), reusable=False)
        if answer.pending is None:
            self._finish(conn, answer)
        else:
            self.pending.hold(conn, head, answer, answer.pending, since=since)

    def _finish(self, conn: Connection, answer: WsgiAnswer) -> None:
        """Queue a final answer, from a thread or from the loop. The loop sends the answer in its next turn."""
        self.served.append((conn, answer))
        self._wake()

    def _wake(self) -> None:
        if not self.woken:
            self.woken = True
            self.method_queue.defer(self._finish_served)

    def _finish_served(self) -> None:
        # Clear the flag before emptying the queues. So an answer that a thread appends later wakes the loop again.
        self.woken = False
        self.pending.settle()
        while self.served:
            self._deliver(*self.served.popleft())

    def _deliver(self, conn: Connection, answer: WsgiAnswer) -> None:
        self.reading.answered(conn)
        if not (conn.send(answer.data) and answer.reusable):
            self.lingering.part(conn)
        elif conn.parser.unreader.buf.getvalue():
            self.enqueue_req(conn)
        else:
            self._keep(conn)

    def _keep(self, conn: Connection) -> None:
        """Wait for the next request without a thread. A stopping worker waits only for a request on its way."""
        conn.sock.setblocking(False)
        conn.set_timeout()
        if not self.alive:
            conn.timeout = min(conn.timeout, time.monotonic() + STOP_KEEPALIVE_LINGER)
        self.keepalived_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_client_socket_readable, conn))

    def _dispatch(self, conn: Connection, head: RequestHead) -> None:
        """Queue a complete request. An event waits for its turn, any other request for a thread."""
        if head.path == _WEBHOOK and not conn.large_bytes:
            self.admission.join(conn, head, self.since)
            return
        conn.hand_over(self.patience.body_s)
        pool = self.tpool if head.path in _QUICK_PATHS else self.readers
        self.queued[conn] = (self.since + self.patience.thread_s, head)
        pool.submit(conn)

    def _keep_deadlines(self, now: float) -> None:
        self.reading.expire(now)
        for conn, (deadline, head) in list(self.queued.items()):
            if deadline <= now and self.queued.pop(conn, None) is not None:
                self._answer(conn, head, OVERLOADED)
        self.pending.expire(now)
        self.lingering.expire(now)

    def _answer(self, conn: Connection, head: RequestHead | None, refusal: Refusal, detail: str = "") -> None:
        """Refuse a request without a thread."""
        if head is not None:
            self.patience.refused(head, refusal.code, detail or refusal.detail)
        conn.send(refusal.response)
        self.lingering.part(conn)

    def _close(self, conn: Connection) -> None:
        self.reading.answered(conn)
        self.nr_conns -= 1
        conn.close()


def _put_events_first() -> None:
    """Configure Python so that threads for pages and scrapes block the event loop only for a short time.

    To serve an event, the loop needs the interpreter dozens of times. A computing thread gives up the interpreter after
    the switch interval, but a garbage collection gives it up only at its end. So this function excludes the
    application's objects from collections and makes collections rarer. Most objects of a scrape need no collection.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(*_COLLECT)
