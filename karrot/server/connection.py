"""One client connection in the worker's event loop: it reads, sends answers without a thread, and closes."""

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from gunicorn import http
from gunicorn.workers.gthread import TConn

from karrot.server.request_completeness import ArrivingRequest

_RECEIVE = 64 << 10
_LINGER_S = 2.0
_LINGER_BYTES = 32 << 20


class Refusal(NamedTuple):
    """An error answer that needs no thread. It has a status line and a code of `karrot.known_problems.CODES`."""

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


OVERLOADED = Refusal("503 Service Unavailable", "overloaded", "The request waited too long for its turn")
TOO_MUCH = Refusal("431 Request Header Fields Too Large", "bad_request", "The request headers are longer than 64 KiB")
LOG_UNAVAILABLE = Refusal("503 Service Unavailable", "log_unavailable", "The event log cannot be used")
UNCONFIRMED = Refusal("503 Service Unavailable", "unconfirmed", "The disk did not answer in time")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
TIMED_OUT = Refusal("408 Request Timeout", "incomplete_body", "The request did not arrive completely in time")


class Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """A connection, with the request that is arriving on it and the deadline of that request."""

    sock: Any
    parser: Any

    def __init__(self, *args: Any, tls: ssl.SSLContext | None) -> None:
        super().__init__(*args)
        self.arriving = ArrivingRequest()
        self.deadline = 0.0
        self.body_awaited = False
        self.polled = False
        self.large_bytes = 0
        self.discarded = 0
        self.handshaken = tls is None
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)

    def receive(self) -> bytes | None:
        """The bytes that have arrived. ``b""`` at the end of the stream, ``None`` if no bytes have arrived yet."""
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

    def send(self, data: bytes) -> bool:
        """Send the data without blocking. Return whether the socket took all of the data.

        The buffer of any socket has room for an answer. It is full only if the client reads nothing at all.
        """
        try:
            self.sock.setblocking(False)
            return not data or self.sock.send(data) == len(data)
        except OSError:
            return False

    def hand_over(self, patience_s: float) -> None:
        """Pass the received bytes to gunicorn's parser. Call this method before the request is served."""
        self.sock.settimeout(patience_s)
        if self.parser is None:
            self.parser = http.get_parser(self.cfg, self.sock, self.client)
            self.initialized = True
        self.parser.unreader.unread(self.arriving.take())
        self.arriving = ArrivingRequest()
        self.body_awaited = False


class LingeringClose:
    """Closes a connection for writing and reads for 2 s more. A close with unread bytes would destroy the answer.

    No thread waits meanwhile: ``poller`` reports the bytes in the event loop. ``close`` closes a connection completely.
    """

    def __init__(self, poller: selectors.BaseSelector, close: Callable[[Connection], None]) -> None:
        self._poller = poller
        self._close = close
        self._until: dict[Connection, float] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    def part(self, conn: Connection) -> None:
        """Start a lingering close. If nothing is unread, TLS is not set up or the socket is broken, close at once."""
        if conn.arriving.nothing_follows or not (conn.handshaken and _shut(conn.sock)):
            self._close(conn)
            return
        self._until[conn] = time.monotonic() + _LINGER_S
        self._poller.register(conn.sock, selectors.EVENT_READ, lambda _sock: self._discard(conn))
        self._discard(conn)

    def expire(self, now: float) -> None:
        """Close the connections that have lingered long enough."""
        for conn in [conn for conn, until in self._until.items() if until <= now]:
            self._end(conn)

    def drop(self, sock: Any) -> None:
        """Close the lingering connection on a socket, if there is one."""
        for conn in [conn for conn in self._until if conn.sock is sock]:
            self._end(conn)

    def _discard(self, conn: Connection) -> None:
        data = conn.receive()
        if data is None:
            return
        conn.discarded += len(data)
        if not data or conn.discarded > _LINGER_BYTES:
            self._end(conn)

    def _end(self, conn: Connection) -> None:
        del self._until[conn]
        with contextlib.suppress(OSError, KeyError, ValueError):
            self._poller.unregister(conn.sock)
        self._close(conn)


def _shut(sock: Any) -> bool:
    """Close the socket for writing. Returns false if it is already closed or broken."""
    try:
        sock.setblocking(False)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        return False
    return True
