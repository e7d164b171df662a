"""One connection as the worker's event loop sees it, and the answers that need no thread."""

import ssl
from typing import Any, NamedTuple

from gunicorn import http
from gunicorn.workers.gthread import TConn

from karrot.server.request_head import ArrivingRequest

_RECEIVE = 64 << 10


class Refusal(NamedTuple):
    """An answer that needs no thread: a code of `karrot.known_problems.CODES` under a status line."""

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
TOO_MUCH = Refusal("431 Request Header Fields Too Large", "bad_request", "The headers have no end in sight")
LOG_UNAVAILABLE = Refusal("503 Service Unavailable", "log_unavailable", "The event log cannot be used")
UNCONFIRMED = Refusal("503 Service Unavailable", "unconfirmed", "The disk did not answer in time")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
TIMED_OUT = Refusal("408 Request Timeout", "incomplete_body", "The request did not arrive whole in time")


class Connection(TConn):  # type: ignore[misc]  # gunicorn has no types
    """A connection, with the request that is arriving on it and the moment it has to be here."""

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

    def send(self, data: bytes) -> bool:
        """Whether all of it is on its way. It fits into any socket's buffer, unless the client reads nothing at all."""
        try:
            self.sock.setblocking(False)
            return not data or self.sock.send(data) == len(data)
        except OSError:
            return False

    def hand_over(self, patience_s: float) -> None:
        """Give what has come to gunicorn's parser; from here on a thread works on it."""
        self.sock.settimeout(patience_s)
        if self.parser is None:
            self.parser = http.get_parser(self.cfg, self.sock, self.client)
            self.initialized = True
        self.parser.unreader.unread(self.arriving.take())
        self.arriving = ArrivingRequest()
        self.body_awaited = False
