"""Shuts down a connection that does not answer in time."""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]

_POLL_S = 0.1

_log = logging.getLogger(__name__)


class Watchdog:
    """Shuts down the sockets of connections whose time is up. The caller, which waits for an answer, gets an error.

    libpq has no time limit for an answer: if a proxy keeps the connection open but forwards nothing, a call would wait
    for ever.
    """

    def __init__(self) -> None:
        self._deadlines: dict[Connection, float] = {}
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextlib.contextmanager
    def limited(self, connection: Connection, seconds: float) -> Iterator[None]:
        """Shut down the connection if the block takes longer than ``seconds``."""
        with self._wake:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="karrot-watchdog", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise psycopg.OperationalError(f"the time of an answer cannot be limited: {error}") from error
                self._thread = thread
            if not self._deadlines:
                self._wake.notify()
            self._deadlines[connection] = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._wake:
                self._deadlines.pop(connection, None)

    def close(self) -> None:
        """End the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._deadlines and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                late = [each for each, deadline in self._deadlines.items() if deadline < time.monotonic()]
                for connection in late:
                    del self._deadlines[connection]
                    _shut_down(connection)
            time.sleep(_POLL_S)


def _shut_down(connection: Connection) -> None:
    _log.warning("PostgreSQL does not answer in time; the connection is shut down", extra={"code": "postgresql_slow"})
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)
