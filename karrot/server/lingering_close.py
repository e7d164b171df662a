"""Closes connections after their last answer, once the client has had time to read it."""

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from karrot.server.connection import Connection

_LINGER_S = 2.0
_LINGER_BYTES = 32 << 20


class LingeringClose:
    """Closes a connection for writing and reads on for a moment: a close with bytes unread would destroy the answer.

    Nobody waits meanwhile: the event loop's ``poller`` brings the bytes. ``close`` ends a connection for good.
    """

    def __init__(self, poller: selectors.BaseSelector, close: Callable[[Connection], None]) -> None:
        self._poller = poller
        self._close = close
        self._until: dict[Connection, float] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    def part(self, conn: Connection) -> None:
        """Begin; one that has sent a request and nothing after it, never finished its handshake, or is broken, ends."""
        if conn.arriving.nothing_follows or not (conn.handshaken and _shut(conn.sock)):
            self._close(conn)
            return
        self._until[conn] = time.monotonic() + _LINGER_S
        self._poller.register(conn.sock, selectors.EVENT_READ, lambda _sock: self._discard(conn))
        self._discard(conn)

    def expire(self, now: float) -> None:
        """End those that have had their time."""
        for conn in [conn for conn, until in self._until.items() if until <= now]:
            self._end(conn)

    def drop(self, sock: Any) -> None:
        """End the connection over a socket, if it is one of these."""
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
    """Close for writing; false if there is nothing to close any more."""
    try:
        sock.setblocking(False)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        return False
    return True
