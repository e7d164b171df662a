"""The worker class of gunicorn that runs `RequestServing` on an event loop of asyncio.

It builds on gunicorn's public `Worker`. gunicorn's own worker for asyncio speaks ASGI, and has no time limits for
heads and bodies: see docs/decisions/0022-one-coroutine-per-connection.md.
"""

import asyncio
import contextlib
import gc
import logging
import mmap
import os
import signal
import socket
import sys
import threading
from typing import Any

from gunicorn.workers.base import Worker as GunicornWorker

from karrot.server.connection import LARGE, Connection, LargeBodies
from karrot.server.request_serving import Patience, RequestServing

_NOTIFY_S = 1.0
_FEW, _MANY = 2, 2048
_WORKERS = 16
_LEAD = 4
_LEAD_S = 0.002
"""How long a worker that has more connections than another one leaves new connections to the other one."""

_LAST_REQUEST_S = 2.0
"""How long a stopping worker waits for requests that are on their way on open connections."""

_PIPE_BYTES = 4096
_SWITCH_S = 0.0002
_COLLECT = (5000, 50, 10)
# They wait from the fork until a new worker has its own handlers. Before, it has the parent's, which would lose them.
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
os.register_at_fork(after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS))

_log = logging.getLogger(__name__)


class ConnectionCounts:
    """How many connections each worker has, in memory that all workers share. Create it before the fork.

    All workers accept from the same socket, and a kept connection stays with its worker. Without the counts, chance
    would distribute the connections, and a worker with few of them commits only few events at a time. A count may be
    old by a moment, because no lock protects it. Workers are known by gunicorn's ``age``.
    """

    def __init__(self) -> None:
        self._counts = memoryview(mmap.mmap(-1, 4 * _WORKERS)).cast("i")

    def set(self, age: int, count: int) -> None:
        """Tell the other workers how many connections a worker has."""
        self._counts[age % _WORKERS] = count + 1

    def leave(self, age: int) -> None:
        """Tell the other workers that a worker accepts no connections now: it ends, or it has too many."""
        self._counts[age % _WORKERS] = 0

    def room(self, age: int) -> int:
        """How many connections a worker may accept before it has clearly more than another one. May be negative."""
        counts = self._counts.tolist()
        own = counts[age % _WORKERS]
        counts[age % _WORKERS] = 0
        fewest = min(filter(None, counts), default=None)
        return _MANY if fewest is None else fewest + fewest // 4 + _LEAD - own


class Worker(GunicornWorker):  # type: ignore[misc]  # gunicorn has no types
    """The worker of `karrot.server.gunicorn.Server`, whose ``service`` it serves."""

    def init_process(self) -> None:
        """Build the service and run."""
        threading.excepthook = end_worker  # before the service starts threads
        super().init_process()

    def init_signals(self) -> None:
        """Install gunicorn's handlers, and receive the signals that came since the fork."""
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)

    def run(self) -> None:
        """Serve until gunicorn stops the worker."""
        put_events_first()
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.patience: Patience = self.app.service.patience
        self.tls = self.app.service.tls
        self.serving = RequestServing(self.wsgi, self.app.service.events, self.patience, threads=self.cfg.threads)
        self.large_bodies = LargeBodies()
        self.connections: dict[Connection, asyncio.Task[None]] = {}
        self.stopped = asyncio.Event()
        self.at_once = _FEW
        self.counts: ConnectionCounts = self.app.counts
        self.loop.add_reader(self.PIPE[0], self._on_signal)
        self._listen()
        while self.alive and self.ppid == os.getppid():
            self.notify()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopped.wait(), _NOTIFY_S)
        await self._stop()

    async def _stop(self) -> None:
        """Answer what is on its way, close the connections, and end."""
        self.alive = False
        self.serving.stopping = True
        self.counts.leave(self.age)
        self._pause_listening()
        for listener in self.sockets:  # now, because a successor takes the port as soon as it gets the data directory
            listener.close()
        for conn in self.connections:
            conn.end_when_idle(_LAST_REQUEST_S)
        deadline = self.loop.time() + self.cfg.graceful_timeout
        while self.connections and self.loop.time() < deadline:
            self.notify()
            await asyncio.wait(self.connections.values(), timeout=_NOTIFY_S)
        self.serving.close()

    def _on_signal(self) -> None:
        """Find out whether a signal stopped the worker. gunicorn's handlers have run before."""
        os.read(self.PIPE[0], _PIPE_BYTES)
        if not self.alive:
            self.stopped.set()

    def _listen(self) -> None:
        """Accept connections unless the worker has too many."""
        if len(self.connections) < self.cfg.worker_connections:
            self.counts.set(self.age, len(self.connections))
            for listener in self.sockets:
                self.loop.add_reader(listener.fileno(), self._accept, listener)
        else:
            self.counts.leave(self.age)
            self._pause_listening()

    def _pause_listening(self) -> None:
        for listener in self.sockets:
            self.loop.remove_reader(listener.fileno())

    def _accept(self, listener: Any) -> None:
        """Accept waiting connections, or leave them to a worker that has fewer.

        A worker accepts 2 connections per turn. While more connections are waiting, it accepts four times as many in
        each further turn, up to 2,048, because they may have waited for long. If the worker has more connections than
        another one, it pauses between the turns. It does not wait for the other one, which may be busy or hang.
        """
        room = self.counts.room(self.age)
        if room > 0:
            self._accept_some(listener, min(self.at_once, room))
        else:
            self._pause_listening()
            self.loop.call_later(_LEAD_S, self._accept_after_pause)

    def _accept_after_pause(self) -> None:
        if self.alive:
            self._listen()
            for listener in self.sockets:
                self._accept_some(listener, self.at_once)

    def _accept_some(self, listener: Any, count: int) -> None:
        for _ in range(min(count, self.cfg.worker_connections - len(self.connections))):
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
                self.counts.set(self.age, len(self.connections))
            else:
                with contextlib.suppress(OSError):
                    sock.send(refusal)
                sock.close()
        self.at_once = min(4 * self.at_once, _MANY)
        if len(self.connections) >= self.cfg.worker_connections:
            self._listen()

    async def _converse(self, conn: Connection, sock: Any) -> None:
        tls_s = self.patience.headers_s if self.tls else None  # asyncio takes these times only with TLS
        try:
            tls = self.tls() if self.tls else None
            await self.loop.connect_accepted_socket(
                lambda: conn, sock, ssl=tls, ssl_handshake_timeout=tls_s, ssl_shutdown_timeout=tls_s
            )
            await self.serving.serve(conn)
        except OSError as error:
            self.log.debug("connection lost: %s", type(error).__name__)
            sock.close()
        finally:
            was_full = len(self.connections) >= self.cfg.worker_connections
            del self.connections[conn]
            if self.alive:
                self.counts.set(self.age, len(self.connections))
                if was_full:
                    self._listen()


def _received(sock: socket.socket) -> bytes:
    """What a client has sent already. A client that waited to be accepted has sent its request by now."""
    try:
        return sock.recv(LARGE)
    except OSError:
        return b""


def end_worker(failed: threading.ExceptHookArgs) -> None:
    """End this worker, because it would fail in silence without the thread. gunicorn starts another worker."""
    if failed.exc_type is not SystemExit:  # which a thread raises to end
        os.kill(os.getpid(), signal.SIGTERM)
        name = failed.thread.name if failed.thread else ""
        _log.critical(
            "a thread failed, so this worker ends",
            exc_info=failed[:3],  # type: ignore[arg-type]  # typeshed: the value may be None
            extra={"code": "thread_failed", "task": name},
        )


def put_events_first() -> None:
    """Configure Python so that threads for pages and scrapes block the event loop only for a short time.

    To serve an event, the loop needs the interpreter dozens of times. A computing thread gives up the interpreter after
    the switch interval, but a garbage collection gives it up only at its end. So this function excludes the
    application's objects from collections and makes collections rarer. Most objects of a scrape need no collection.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(*_COLLECT)
