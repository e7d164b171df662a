"""The worker class of gunicorn that runs `RequestServing` on an event loop of asyncio.

It builds on gunicorn's public `Worker`. gunicorn's own worker for asyncio speaks ASGI, and has no time limits for
heads and bodies: see docs/decisions/0022-one-coroutine-per-connection.md.
"""

import asyncio
import contextlib
import gc
import os
import socket
import sys
from typing import Any

from gunicorn.sock import ssl_context
from gunicorn.workers.base import Worker as GunicornWorker

from karrot.server.connection import LARGE, Connection, LargeBodies
from karrot.server.request_serving import Patience, RequestServing

_NOTIFY_S = 1.0
_FEW, _MANY = 2, 2048
_LAST_REQUEST_S = 2.0
"""How long a stopping worker waits for requests that are on their way on open connections."""

_PIPE_BYTES = 4096
_SWITCH_S = 0.0002
_COLLECT = (5000, 50, 10)


class Worker(GunicornWorker):  # type: ignore[misc]  # gunicorn has no types
    """The worker of `karrot.server.gunicorn.Server`, whose ``service`` it serves."""

    def run(self) -> None:
        """Serve until gunicorn stops the worker."""
        _put_events_first()
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self.patience: Patience = self.app.service.patience
        self.tls = ssl_context(self.cfg) if self.cfg.is_ssl else None
        self.serving = RequestServing(self.wsgi, self.app.service.events, self.patience, threads=self.cfg.threads)
        self.large_bodies = LargeBodies()
        self.connections: dict[Connection, asyncio.Task[None]] = {}
        self.stopped = asyncio.Event()
        self.at_once = _FEW
        loop.add_reader(self.PIPE[0], self._on_signal)
        self._listen()
        while not self.stopped.is_set():
            self.notify()
            if self.ppid != os.getppid():
                break
            await self._pause(_NOTIFY_S)
        await self._stop()

    async def _stop(self) -> None:
        """Answer what is on its way, close the connections, and end."""
        self.alive = False
        self.serving.stopping = True
        self._listen()
        for listener in self.sockets:  # now, because a successor takes the port as soon as it gets the data directory
            listener.close()
        for conn in self.connections:
            conn.end_when_idle(_LAST_REQUEST_S)
        deadline = asyncio.get_running_loop().time() + self.cfg.graceful_timeout
        while self.connections and asyncio.get_running_loop().time() < deadline:
            self.notify()
            await asyncio.wait(self.connections.values(), timeout=_NOTIFY_S)
        self.serving.close()

    def _on_signal(self) -> None:
        """Find out whether a signal stopped the worker. gunicorn's handlers have run before."""
        os.read(self.PIPE[0], _PIPE_BYTES)
        if not self.alive:
            self.stopped.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopped.wait()
        except TimeoutError:
            return

    def _listen(self) -> None:
        """Accept connections unless the worker stops or has too many."""
        loop = asyncio.get_running_loop()
        for listener in self.sockets:
            if self.alive and len(self.connections) < self.cfg.worker_connections:
                loop.add_reader(listener.fileno(), self._accept, listener)
            else:
                loop.remove_reader(listener.fileno())

    def _accept(self, listener: Any) -> None:
        """Accept waiting connections.

        A worker accepts 2 connections per turn, so that the other workers get their share. While more connections are
        waiting, it accepts four times as many in each further turn, up to 2,048, because they may have waited for long.
        """
        room = self.cfg.worker_connections - len(self.connections)
        for _ in range(min(self.at_once, room)):
            try:
                sock, address = listener.accept()
            except OSError:  # no connection waits, or the client has left, or the system has no room for it
                self.at_once = _FEW
                return
            sock.setblocking(False)
            first = b"" if self.tls else _received(sock)
            refusal = self.serving.admit(first, address[0])
            if refusal is None:
                conn = Connection(self.large_bodies, first, send_s=self.patience.body_s)
                self.connections[conn] = asyncio.create_task(self._converse(conn, sock))
            else:
                with contextlib.suppress(OSError):
                    sock.send(refusal)
                sock.close()
        self.at_once = min(4 * self.at_once, _MANY)
        if len(self.connections) >= self.cfg.worker_connections:
            self._listen()

    async def _converse(self, conn: Connection, sock: Any) -> None:
        # asyncio takes these times only with TLS.
        names = ("ssl_handshake_timeout", "ssl_shutdown_timeout") if self.tls else ()
        times = dict.fromkeys(names, self.patience.headers_s)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: conn, sock, ssl=self.tls, **times)
            await self.serving.serve(conn)
        except OSError as error:
            self.log.debug("connection lost: %s", type(error).__name__)
            sock.close()
        finally:
            was_full = len(self.connections) >= self.cfg.worker_connections
            del self.connections[conn]
            if was_full and self.alive:
                self._listen()


def _received(sock: socket.socket) -> bytes:
    """What a client has sent already. A client that waited to be accepted has sent its request by now."""
    try:
        return sock.recv(LARGE)
    except OSError:
        return b""


def _put_events_first() -> None:
    """Configure Python so that threads for pages and scrapes block the event loop only for a short time.

    To serve an event, the loop needs the interpreter dozens of times. A computing thread gives up the interpreter after
    the switch interval, but a garbage collection gives it up only at its end. So this function excludes the
    application's objects from collections and makes collections rarer. Most objects of a scrape need no collection.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(*_COLLECT)
