"""gunicorn's threaded worker, with threads that never wait for a client to send.

gunicorn hands a connection to a thread at its first byte, so as many half requests as there are threads stop a worker
(measured: 8 of them against 2 workers of 4 threads). Here the event loop collects a request until it is whole, within
the time for headers and for the body, and only then queues it; one that has been queued for too long is answered 503
by the loop itself. Whoever reads slowly shares a pool of threads with other readers and never keeps Burrow waiting.
"""

import contextlib
import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gunicorn import http
from gunicorn.sock import ssl_context
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, TConn, ThreadWorker

from karrot.web.arriving import Arriving, Head
from karrot.web.pool import Pool

__all__ = ["Patience", "Worker"]

_RECEIVE = 64 << 10
_LINGER_S = 2.0
_LINGER_BYTES = 32 << 20
_LARGE = 64 << 10
_LARGE_TOGETHER = 32 << 20
_TICK_S = 0.25
_QUICK_PATHS = ("/burrow", "/healthz", "/readyz", "/heartbeat")
_DRAIN_S = 0.05


class Patience(NamedTuple):
    """How long whom is waited for, in seconds.

    ``admits`` says whether a request's body is worth waiting for; ``refused(head, code, detail)`` is told of each
    request that was answered without a thread.
    """

    headers_s: float
    body_s: float
    thread_s: float
    admits: Callable[[Head], bool]
    refused: Callable[[Head, str, str], None]


class Refusal(NamedTuple):
    """An answer that needs no thread: a code of `karrot.web.problems.CODES` under a status line."""

    status: str
    code: str
    detail: str

    @property
    def response(self) -> bytes:
        """The bytes to send."""
        retry = "Retry-After: 1\r\n" if self.status.startswith("503") else ""
        type_uri = f"urn:problem-type:karrot:{self.code}"
        body = f'{{"type":"{type_uri}","title":"{self.detail}","status":{self.status[:3]},"code":"{self.code}"}}'
        return (
            f"HTTP/1.1 {self.status}\r\nContent-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n"
            f"{retry}Connection: close\r\n\r\n{body}"
        ).encode()


_OVERLOADED = Refusal("503 Service Unavailable", "overloaded", "The request waited too long for its turn")
_TOO_MUCH = Refusal("431 Request Header Fields Too Large", "bad_request", "The headers have no end in sight")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_TIMED_OUT = Refusal("408 Request Timeout", "incomplete_body", "The request did not arrive whole in time")


class Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """A connection, with the request that is arriving on it and the moment it has to be here."""

    sock: Any
    parser: Any

    def __init__(self, *args: Any, tls: ssl.SSLContext | None) -> None:
        super().__init__(*args)
        self.arriving = Arriving()
        self.deadline = 0.0
        self.body_awaited = False
        self.polled = False
        self.large_bytes = 0
        self.discarded = 0
        self.handshaken = tls is None
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)

    def receive(self) -> bytes | None:
        """What has come; ``b""`` at the end of the stream, ``None`` if nothing has come yet."""
        try:
            if not self.handshaken:
                self.sock.do_handshake()
                self.handshaken = True
            data: bytes = self.sock.recv(_RECEIVE)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError:
            return b""
        return data

    def hand_over(self, patience_s: float) -> None:
        """Give what has come to gunicorn's parser; from here on a thread works on it."""
        self.sock.settimeout(patience_s)
        if self.parser is None:
            self.parser = http.get_parser(self.cfg, self.sock, self.client)
            self.initialized = True
        self.parser.unreader.unread(self.arriving.take())
        self.arriving = Arriving()
        self.body_awaited = False


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Takes the place of ``gthread``. The application gives its `Patience` as ``app.patience``."""

    alive: bool

    def init_process(self) -> None:
        """Make the second pool before the loop starts."""
        self.patience: Patience = self.app.patience
        self.tls: ssl.SSLContext | None = ssl_context(self.cfg) if self.cfg.is_ssl else None
        self.readers: Pool[Connection] = Pool(max(2, self.cfg.threads // 4), self._serve, "reader")
        self.collecting: set[Connection] = set()
        self.queued: dict[Connection, tuple[float, Head]] = {}
        self.lingering: dict[Connection, float] = {}
        self.served: deque[tuple[Connection, bool]] = deque()
        self.woken = False
        self.large_bytes = 0
        super().init_process()

    def get_thread_pool(self) -> "Pool[Connection]":
        """The threads that serve Burrow."""
        return Pool(self.cfg.threads, self._serve, "intake")

    def accept(self, listener: Any) -> None:
        """Take a new connection; no thread hears of it yet."""
        try:
            client_sock, client_addr = listener.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return
        try:
            conn = Connection(self.cfg, client_sock, client_addr, listener.getsockname(), tls=self.tls)
        except OSError:
            client_sock.close()
            return
        self.nr_conns += 1
        self._collect(conn)

    def enqueue_req(self, conn: Connection) -> None:
        """Begin with the next request of a connection, some of which may be here already."""
        self._feed(conn, conn.parser.unreader.take_buffered())
        self._collect(conn)

    def on_client_socket_readable(self, conn: Connection, client: Any) -> None:
        """A kept-alive connection speaks again."""
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        self._collect(conn)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Wait for events, and keep the deadlines that gunicorn does not know."""
        timed = self.collecting or self.queued or self.lingering
        for key, _ in self.poller.select(min(timeout, _TICK_S) if timed else timeout):
            self._dispatch_event(key)
        self._keep_deadlines(time.monotonic())

    def is_parent_alive(self) -> bool:
        """Whether gunicorn's parent is there. An orphan says goodbye on every connection, or it would live on them."""
        self.alive = bool(super().is_parent_alive()) and self.alive
        return self.alive

    def handle(self, conn: Connection) -> bool:
        """Serve one request, in a thread; say whether the connection can be used again."""
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

    def _dispatch_event(self, key: selectors.SelectorKey) -> None:
        try:
            key.data(key.fileobj)
        except Exception:
            # The outermost loop: what goes wrong with one connection must not end the worker with all the others.
            self.log.exception("an event on a connection could not be handled")
            if isinstance(key.fileobj, socket.socket) and key.fileobj not in self.sockets:
                self._drop(key.fileobj)

    def _drop(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, KeyError, ValueError):
            self.poller.unregister(sock)
        for conn in [conn for conn in (*self.collecting, *self.lingering) if conn.sock is sock]:
            self.collecting.discard(conn)
            self.lingering.pop(conn, None)
            self.nr_conns -= 1
        sock.close()

    def _serve(self, conn: Connection) -> None:
        """Work on a connection, in a thread, unless the loop has answered it meanwhile: one of both takes it."""
        if self.queued.pop(conn, None) is None:
            return
        self.served.append((conn, self.handle(conn)))
        if not self.woken:
            self.woken = True
            self.method_queue.defer(self._finish_served)

    def _finish_served(self) -> None:
        # The flag falls before the queue is emptied: what is appended from now on wakes the loop again.
        self.woken = False
        while self.served:
            conn, reusable = self.served.popleft()
            self._account(conn, 0)
            if not reusable:
                self._part(conn)
            elif conn.parser.unreader.buf.getvalue():
                self.enqueue_req(conn)
            else:
                self._keep(conn)

    def _keep(self, conn: Connection) -> None:
        """Wait for the next request without a thread; a stopping worker waits only for one that is on its way."""
        conn.sock.setblocking(False)
        conn.set_timeout()
        if not self.alive:
            conn.timeout = min(conn.timeout, time.monotonic() + STOP_KEEPALIVE_LINGER)
        self.keepalived_conns.append(conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self.on_client_socket_readable, conn))

    def _collect(self, conn: Connection) -> None:
        conn.sock.setblocking(False)
        conn.deadline = time.monotonic() + self.patience.headers_s
        self.collecting.add(conn)
        if (not len(conn.arriving) or self._advance(conn)) and self._read(conn):
            conn.polled = True
            self.poller.register(conn.sock, selectors.EVENT_READ, lambda _sock: self._read(conn))

    def _read(self, conn: Connection) -> bool:
        """Take what has come; say whether the request is still arriving."""
        while (data := conn.receive()) is not None:
            if not data:
                self._forget(conn)
                self._close(conn)
                return False
            self._feed(conn, data)
            if not self._advance(conn):
                return False
        return True

    def _feed(self, conn: Connection, data: bytes) -> None:
        conn.arriving.feed(data)
        self._account(conn, len(conn.arriving))

    def _account(self, conn: Connection, size: int) -> None:
        """Large requests share a budget until they are answered; small ones are bounded by their number."""
        large = size if size > _LARGE else 0
        self.large_bytes += large - conn.large_bytes
        conn.large_bytes = large

    def _advance(self, conn: Connection) -> bool:
        """Hand the request over if it is here; say whether it is still arriving."""
        if conn.large_bytes and self.large_bytes > _LARGE_TOGETHER:
            return self._refuse(conn, _OVERLOADED)
        head = conn.arriving.head
        if head is None:
            return not conn.arriving.head_is_endless or self._refuse(conn, _TOO_MUCH)
        if not conn.arriving.body_is_whole and self.patience.admits(head):
            return self._await_body(conn, head)
        return self._dispatch(conn, head)

    def _await_body(self, conn: Connection, head: Head) -> bool:
        if not conn.body_awaited:
            conn.body_awaited = True
            if head.waits_for_continue:
                conn.arriving.go_on()
                with contextlib.suppress(OSError):
                    conn.sock.send(_CONTINUE)
            conn.deadline = time.monotonic() + self.patience.body_s
        return True

    def _dispatch(self, conn: Connection, head: Head) -> bool:
        self._forget(conn)
        conn.hand_over(self.patience.body_s)
        pool = self.tpool if head.path in _QUICK_PATHS else self.readers
        self.queued[conn] = (time.monotonic() + self.patience.thread_s, head)
        pool.submit(conn)
        return False

    def _keep_deadlines(self, now: float) -> None:
        for conn in [conn for conn in self.collecting if conn.deadline <= now]:
            self._refuse(conn, _TIMED_OUT)
        for conn, (deadline, head) in list(self.queued.items()):
            if deadline <= now and self.queued.pop(conn, None) is not None:
                self._answer(conn, head, _OVERLOADED)
        for conn in [conn for conn, deadline in self.lingering.items() if deadline <= now]:
            self._end_lingering(conn)

    def _refuse(self, conn: Connection, refusal: Refusal) -> bool:
        said_nothing = len(conn.arriving) == 0
        self._forget(conn)
        if said_nothing:
            self._close(conn)
        else:
            self._answer(conn, conn.arriving.head, refusal)
        return False

    def _answer(self, conn: Connection, head: Head | None, refusal: Refusal) -> None:
        if head is not None:
            self.patience.refused(head, refusal.code, refusal.detail)
        # A few hundred bytes fit into any socket buffer; a client whose buffer is full would not read them either.
        with contextlib.suppress(OSError):
            conn.sock.setblocking(False)
            conn.sock.send(refusal.response)
        self._part(conn)

    def _part(self, conn: Connection) -> None:
        """Close for writing, and read on for a moment: a close with bytes unread would destroy the answer."""
        if not conn.handshaken:
            self._close(conn)
            return
        try:
            conn.sock.setblocking(False)
            conn.sock.shutdown(socket.SHUT_WR)
            self.lingering[conn] = time.monotonic() + _LINGER_S
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._discard, conn))
            self._discard(conn, conn.sock)
        except (OSError, ValueError):
            self.lingering.pop(conn, None)
            self._close(conn)

    def _discard(self, conn: Connection, _sock: Any) -> None:
        data = conn.receive()
        if data is None:
            return
        conn.discarded += len(data)
        if not data or conn.discarded > _LINGER_BYTES:
            self._end_lingering(conn)

    def _end_lingering(self, conn: Connection) -> None:
        self.lingering.pop(conn, None)
        with contextlib.suppress(OSError, KeyError, ValueError):
            self.poller.unregister(conn.sock)
        self._close(conn)

    def _forget(self, conn: Connection) -> None:
        self.collecting.discard(conn)
        if conn.polled:
            conn.polled = False
            self.poller.unregister(conn.sock)

    def _close(self, conn: Connection) -> None:
        self._account(conn, 0)
        self.nr_conns -= 1
        conn.close()
