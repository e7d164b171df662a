"""Reads requests from connections in the event loop until they are complete, each within its deadline."""

import selectors
import time
from collections.abc import Callable
from typing import NamedTuple

from karrot.server.connection import CONTINUE, OVERLOADED, TIMED_OUT, TOO_MUCH, Connection, Refusal
from karrot.server.request_completeness import RequestHead

_LARGE = 64 << 10
_LARGE_TOGETHER = 32 << 20
_CHUNKS_A_TURN = 4
"""The most chunks that are read from one connection in a turn, so that a large request does not delay the others."""


class ReadingCallbacks(NamedTuple):
    """The calls when reading ends: ``whole(conn, head)``, ``refused(conn, head, refusal)`` or ``gone(conn)``."""

    whole: Callable[[Connection, RequestHead], object]
    refused: Callable[[Connection, RequestHead | None, Refusal], object]
    gone: Callable[[Connection], object]


class RequestReading:
    """Reads what clients send. Hands over a request when it is complete, or when its body is not needed.

    ``admits(head)`` returns whether to wait for the body. Large requests share a budget of bytes until they are
    answered. Small requests have no budget, because the number of connections limits them.
    """

    def __init__(
        self,
        poller: selectors.BaseSelector,
        admits: Callable[[RequestHead], bool],
        ends: ReadingCallbacks,
        *,
        headers_s: float,
        body_s: float,
    ) -> None:
        self._poller = poller
        self._admits = admits
        self._ends = ends
        self._headers_s = headers_s
        self._body_s = body_s
        self._here: set[Connection] = set()
        self._large_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._here)

    def begin(self, conn: Connection, data: bytes = b"") -> None:
        """Start to read the next request of a connection. ``data`` is the part that was already read."""
        conn.sock.setblocking(False)
        conn.deadline = time.monotonic() + self._headers_s
        self._here.add(conn)
        if data:
            self._feed(conn, data)
        if (not data or self._advance(conn)) and self._read(conn):
            conn.polled = True
            self._poller.register(conn.sock, selectors.EVENT_READ, lambda _sock: self._read(conn))

    def expire(self, now: float) -> None:
        """Refuse the requests whose deadline has passed."""
        for conn in [conn for conn in self._here if conn.deadline <= now]:
            self._refuse(conn, TIMED_OUT)

    def drop(self, sock: object) -> None:
        """If a request is being read from this socket, end its connection. The socket must not be polled any more."""
        for conn in [conn for conn in self._here if conn.sock is sock]:
            self._here.discard(conn)
            self._ends.gone(conn)

    def answered(self, conn: Connection) -> None:
        """Release the budget of an answered request."""
        self._account(conn, 0)

    def _read(self, conn: Connection) -> bool:
        """Read the bytes that have arrived. Returns whether the request is still incomplete."""
        for _ in range(_CHUNKS_A_TURN):
            data = conn.receive()
            if data is None:
                break
            if not data:
                self._leave(conn)
                self._ends.gone(conn)
                return False
            self._feed(conn, data)
            if not self._advance(conn):
                return False
        return True

    def _feed(self, conn: Connection, data: bytes) -> None:
        conn.arriving.feed(data)
        self._account(conn, len(conn.arriving))

    def _account(self, conn: Connection, size: int) -> None:
        large = size if size > _LARGE else 0
        self._large_bytes += large - conn.large_bytes
        conn.large_bytes = large

    def _advance(self, conn: Connection) -> bool:
        """Hand over the request if it is complete. Return whether it is still incomplete."""
        if conn.large_bytes and self._large_bytes > _LARGE_TOGETHER:
            return self._refuse(conn, OVERLOADED)
        head = conn.arriving.head
        if head is None:
            return not conn.arriving.head_is_endless or self._refuse(conn, TOO_MUCH)
        if not conn.arriving.body_is_whole and self._admits(head):
            return self._await_body(conn, head)
        self._leave(conn)
        self._ends.whole(conn, head)
        return False

    def _await_body(self, conn: Connection, head: RequestHead) -> bool:
        if not conn.body_awaited:
            conn.body_awaited = True
            if head.waits_for_continue:
                conn.arriving.go_on()
                conn.send(CONTINUE)
            conn.deadline = time.monotonic() + self._body_s
        return True

    def _refuse(self, conn: Connection, refusal: Refusal) -> bool:
        self._leave(conn)
        if len(conn.arriving):
            self._ends.refused(conn, conn.arriving.head, refusal)
        else:  # the client sent nothing, so it gets no answer
            self._ends.gone(conn)
        return False

    def _leave(self, conn: Connection) -> None:
        self._here.discard(conn)
        if conn.polled:
            conn.polled = False
            self._poller.unregister(conn.sock)
