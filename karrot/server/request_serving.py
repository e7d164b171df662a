"""Serves a connection: one coroutine reads a request, answers it, and reads the next.

Events take the short way: the coroutine gives an event to the log's writer, and answers when the writer has committed
it. All other requests are for the WSGI application, which runs in threads with the handler of the standard library. No
thread waits for a client's request.
"""

import asyncio
import contextlib
import io
import logging
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Protocol
from wsgiref.handlers import BaseHandler
from wsgiref.headers import Headers

from karrot.eventlog.base import TURN_SHARE, OverloadedError, PendingAppend, UnconfirmedError
from karrot.server.connection import END_OF_HEAD, LARGE, Connection, HttpReply, RefusedHead, RequestHead

Application = Callable[[dict[str, Any], Callable[..., Any]], Any]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_QUICK_PATHS = ("/healthz", "/readyz", "/heartbeat")
_SCRAPED = "/metrics"
_SERVE_SHARE = TURN_SHARE - 0.05
"""An event waits at most this share of the patience to be served. A commit must take it within `TURN_SHARE`."""

_A_TURN = 64
_FIRST_GUESS = (0.01, 40.0)
"""At the start, a worker assumes that it served 40 requests in 0.01 s. A time that is too short does less harm than one
that is too long, because the worker can still refuse a request later."""

_REMEMBERED = 1000
_PIECE = 64 << 10
_MOST_WAITING = 3072
"""Fewer than the connections that a worker may have, so that it never has to leave some where their wait is unknown."""

_ADMIT_SHARE = 0.4
"""A new connection is admitted if its event will probably wait at most this share of the patience."""

_log = logging.getLogger(__name__)


class EventEndpoint(Protocol):
    """What the application does with events. The event loop calls it. A thread calls ``begin`` with a large body."""

    accepted: HttpReply
    """The answer to a stored event."""

    def takes(self, head: RequestHead) -> bool:
        """Whether the request posts an event."""

    def admit(self, head: RequestHead) -> int:
        """The length of the body, if its head is right. Raises anything otherwise."""

    def begin(self, head: RequestHead, body: bytes) -> PendingAppend:
        """Append an event without waiting for the disk. Raises anything if the event is refused."""

    def refusal(self, head: RequestHead | None, error: Exception, client: str) -> HttpReply:
        """Count a refused request, if it posts an event, and answer it. Without ``head``, its head was refused."""


class Patience(NamedTuple):
    """The seconds that the server waits for a head, for a body, for a stored event or a thread, and for a next request.

    ``idle_s`` is longer than Burrow's interval, because closing an idle connection can lose Burrow's next POST.
    """

    headers_s: float
    body_s: float
    turn_s: float = 2.0
    idle_s: float = 75.0


class Turns:
    """Lets coroutines do their work in order, a few of them in each turn of the event loop.

    In every turn, the event loop also accepts connections and reads requests. Without this limit, a turn would take
    seconds under overload, and connections would wait in the kernel, where nobody knows for how long.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._free = _A_TURN

    async def take(self) -> None:
        """Wait for a turn of the event loop that has room."""
        if self._free == _A_TURN:
            self._loop.call_soon(self._begin)
        if self._free and not self._waiting:
            self._free -= 1
            return
        self._waiting.append(turn := self._loop.create_future())
        await turn

    def _begin(self) -> None:
        """Begin a turn of the event loop."""
        self._free = _A_TURN
        if self._waiting:
            self._loop.call_soon(self._begin)
        while self._waiting and self._free:
            self._free -= 1
            if not (turn := self._waiting.popleft()).done():
                turn.set_result(None)


class RequestServing:
    """Serves the connections of one worker. Threads run the application: health checks and scrapes have their own.

    While ``stopping``, each connection is closed after its answer.
    """

    def __init__(self, application: Application, events: EventEndpoint, patience: Patience, *, threads: int) -> None:
        self._application = application
        self._events = events
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._quick = ThreadPoolExecutor(threads, "quick")
        self._readers = ThreadPoolExecutor(max(2, threads // 4), "reader")
        self._scrapes = ThreadPoolExecutor(max(2, threads // 4), "scrape")
        self._stored: deque[asyncio.Future[None]] = deque()
        self._woken = False
        self._turns = Turns()
        self._waiting = 0
        self._last_served = 0.0
        self._served_s, self._served = _FIRST_GUESS
        self.stopping = False

    def admit(self, received: bytes, client: str) -> bytes | None:
        """Admit a new connection, or return the refusal of its event because its turn would come too late.

        ``received`` is what has arrived on the connection. If it has sent a request, the connection waits until `serve`
        has served it. A refusal here costs a small part of an event. So under three times the load that a worker can
        serve, there is time for events.
        """
        if END_OF_HEAD not in received:
            return None
        wait_s = self._waiting * self._served_s / self._served
        if self._waiting >= _MOST_WAITING or wait_s > self._patience.turn_s * _ADMIT_SHARE:
            end = received.find(END_OF_HEAD) + len(END_OF_HEAD)
            with contextlib.suppress(RefusedHead):
                head = RequestHead(received[:end])
                if self._events.takes(head) and len(received) - end == head.length:
                    return self._events.refusal(head, _late(), client).to_bytes(keeps_alive=False)
        if not self._waiting:
            self._last_served = self._loop.time()
        self._waiting += 1
        return None

    async def serve(self, conn: Connection) -> None:
        """Answer the requests of a connection until it ends."""
        try:
            idle_s = self._patience.headers_s
            while await self._serve_next(conn, idle_s):
                conn.end_request()
                idle_s = self._patience.idle_s
        except (OSError, asyncio.CancelledError) as error:
            _log.debug("connection lost: %s", type(error).__name__)
        finally:
            self._end_wait(conn)
            await conn.part()

    def close(self) -> None:
        """End the threads when they have finished what they do."""
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._scrapes.shutdown(wait=False, cancel_futures=True)

    async def _serve_next(self, conn: Connection, idle_s: float) -> bool:
        """Serve one request. Return whether the connection can be used again."""
        head = None
        try:
            head = await conn.read_head(idle_s=idle_s, head_s=self._patience.headers_s)
            if head is None:
                return False
            if not self._events.takes(head):
                return await self._call_application(conn, head)
            await self._take_event(conn, head)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - the outermost place of a request: the endpoint logs what it must
            conn.send(self._events.refusal(head, error, conn.client[0]).to_bytes(keeps_alive=False))
            return False
        keeps_alive = head.keeps_alive and not self.stopping
        await conn.send_and_wait(self._events.accepted.to_bytes(keeps_alive=keeps_alive))
        return keeps_alive

    async def _take_event(self, conn: Connection, head: RequestHead) -> None:
        """Read an event, append it, and wait until it is stored."""
        length = self._events.admit(head)
        if head.waits_for_continue and not conn.has_bytes(1):
            conn.send(_CONTINUE)
        if not conn.has_bytes(length):
            self._end_wait(conn)  # it is the client that lets us wait
        body = await conn.read_body(length, self._patience.body_s)
        arrived = conn.received_at
        await self._turns.take()
        if self._loop.time() - arrived > self._patience.turn_s * _SERVE_SHARE:
            raise _late()
        self._end_wait(conn)
        if length > LARGE:
            pending = await self._loop.run_in_executor(self._quick, self._events.begin, head, body)
        else:
            pending = self._events.begin(head, body)
        stored = self._loop.create_future()
        pending.when_done(partial(self._on_stored, stored))
        timer = self._loop.call_at(
            arrived + self._patience.turn_s * TURN_SHARE, self._withdraw, pending, stored, arrived
        )
        try:
            await stored
        finally:
            timer.cancel()
        pending.wait()

    def _end_wait(self, conn: Connection) -> None:
        """Count a served request. While requests wait, the time since the one before is what a request takes."""
        if not conn.waits:
            return
        conn.waits = False
        self._waiting -= 1
        now = self._loop.time()
        fade = 0.5 if self._served > _REMEMBERED else 1.0
        self._served_s = (self._served_s + now - self._last_served) * fade
        self._served = (self._served + 1) * fade
        self._last_served = now

    def _withdraw(self, pending: PendingAppend, stored: "asyncio.Future[None]", arrived: float) -> None:
        """Give up an event that no commit has taken in time. One that a commit has taken may still be stored."""
        if pending.withdraw():
            _fail(stored, _late())
        else:
            self._loop.call_at(
                arrived + self._patience.turn_s, _fail, stored, UnconfirmedError("The disk did not answer in time")
            )

    def _on_stored(self, stored: "asyncio.Future[None]") -> None:
        """Queue a finished append, from any thread. Waking the loop costs a system call, so one wakes it for all."""
        self._stored.append(stored)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        # Clear the flag before emptying the queue. So an append that finishes later wakes the loop again.
        self._woken = False
        while self._stored:
            stored = self._stored.popleft()
            if not stored.done():
                stored.set_result(None)

    async def _call_application(self, conn: Connection, head: RequestHead) -> bool:
        """Let a thread answer with the WSGI application. Raises `OverloadedError` if no thread is free in time."""

        def send(data: bytes) -> None:
            # The sending has its own time limit. This one is for a loop that has ended meanwhile.
            asyncio.run_coroutine_threadsafe(conn.send_and_wait(data), self._loop).result(2 * self._patience.body_s)

        self._end_wait(conn)
        call = WsgiCall(head, conn, send, keep=not self.stopping)
        path = head.path.rstrip("/")  # it may begin with the prefix of a proxy
        lanes = (self._quick, _QUICK_PATHS), (self._scrapes, _SCRAPED)
        pool = next((pool for pool, paths in lanes if path.endswith(paths)), self._readers)
        running: Future[None] = pool.submit(call.run, self._application)
        timer = self._loop.call_later(self._patience.turn_s, running.cancel)
        try:
            await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if not running.cancelled():
                raise
            raise OverloadedError("The request waited too long for a thread") from None
        finally:
            timer.cancel()
        return call.keeps_alive


class WsgiCall(BaseHandler):
    """One request to the application. ``send(bytes)`` sends a part of the answer and blocks while the client is slow.

    The request's body is not read. After `run`, ``keeps_alive`` says whether the connection can be used again.
    """

    os_environ: dict[str, str] = {}  # noqa: RUF012 - the class attribute of BaseHandler
    server_software = None
    http_version = "1.1"

    # BaseHandler sets these, and typeshed does not know them.
    environ: dict[str, Any]
    headers: Headers
    headers_sent: bool
    status: str

    def __init__(self, head: RequestHead, conn: Connection, send: Callable[[bytes], object], *, keep: bool) -> None:
        self._head = head
        self._conn = conn
        self._send = send
        self._unsent = bytearray()
        self.keeps_alive = keep and head.keeps_alive and not head.announces_a_body

    def add_cgi_vars(self) -> None:
        """Put the request into the environment (PEP 3333)."""
        head, conn = self._head, self._conn
        headers = {
            f"HTTP_{name.upper().replace('-', '_')}": value
            for name, value in head.headers.items()
            # A name with an underscore could pass for another header. A body is not read, so it has no length.
            if "_" not in name and name not in ("content-type", "content-length", "transfer-encoding")
        }
        self.environ |= headers | {
            "REQUEST_METHOD": head.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": head.path,
            "QUERY_STRING": head.query,
            "SERVER_PROTOCOL": f"HTTP/{head.version}",
            "SERVER_NAME": str(conn.server[0]),
            "SERVER_PORT": str(conn.server[1]),
            "REMOTE_ADDR": str(conn.client[0]),
            "CONTENT_TYPE": head.headers.get("content-type", ""),
        }

    def get_stdin(self) -> io.BytesIO:
        """An empty body."""
        return io.BytesIO()

    def get_stderr(self) -> Any:
        """Where the application may write errors."""
        return sys.stderr

    def get_scheme(self) -> str:
        """The scheme of the URL."""
        return "https" if self._conn.encrypted else "http"

    def cleanup_headers(self) -> None:
        """Announce the length, or that the answer ends with the connection."""
        super().cleanup_headers()
        self.keeps_alive = self.keeps_alive and ("Content-Length" in self.headers or self._is_bodiless())
        if not self.keeps_alive:
            self.headers["Connection"] = "close"

    def finish_content(self) -> None:
        """Send the head of an answer without a body, or the rest of the body."""
        if not self.headers_sent:
            if not self._is_bodiless():
                self.headers.setdefault("Content-Length", "0")
            self.send_headers()
        self._send(bytes(self._unsent))

    def log_exception(self, exc_info: Any) -> None:
        """Log an error that the application did not handle, or that the client did not read the answer."""
        if issubclass(exc_info[0], OSError):
            _log.debug("connection lost: %s", exc_info[0].__name__)
        else:
            _log.error(
                "the application failed",
                extra={
                    "code": "application_failed",
                    "method": self._head.method,
                    "path": self._head.path[:200],
                },
                exc_info=exc_info,
            )
        self.keeps_alive = False

    def _is_bodiless(self) -> bool:
        """Whether the answer has no body, whatever its length says (RFC 9110)."""
        return self._head.method == "HEAD" or self.status[:3] in ("204", "304")

    def _write(self, data: bytes) -> None:
        self._unsent += data
        if len(self._unsent) >= _PIECE:
            piece, self._unsent = bytes(self._unsent), bytearray()
            self._send(piece)

    def _flush(self) -> None:
        """Send nothing yet. `_write` sends when there is enough, and `finish_content` sends the rest."""


def _late() -> OverloadedError:
    return OverloadedError("The request waited too long for its turn")


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
