"""Serves HTTP in a worker, with uvicorn's connections and Karrot's own timeouts and size limits.

uvicorn and httptools decide what is valid HTTP. `HttpServer` accepts and counts the connections, and gives each one the
newest TLS certificate. docs/decisions/0028 says what uvicorn does not do itself.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from itertools import chain
from types import SimpleNamespace
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from karrot.eventlog.base import OverloadedError
from karrot.web.webhook import Answer, IncompleteRequest, RefusedHead

_IDLE_S = 75
"""The seconds until an idle connection is closed, which can lose Burrow's next POST: longer than Burrow's interval."""

_LAST_REQUEST_S = 2.0
"""The seconds that a stopping worker waits for requests that clients have already sent on idle connections."""

_FEW, _MANY, _BUSY = 2, 4096, 64
_FULL = ((3072, 0.0), (1024, 0.3), (64, 0.8))
"""Pairs of a number of waiting requests and seconds. An event on a new connection is refused without a coroutine if so
many requests wait and the last event waited that long. So an idle worker accepts a burst."""

_HEAD_LIMIT = 64 << 10
_LINE_LIMIT = 4094
_FIELDS_LIMIT = 100
_TOO_LONG = f"The request headers are longer than {_HEAD_LIMIT >> 10} KiB."
_LINGER_S = 2.0


class Connection(HttpToolsProtocol):
    """One connection, which is the extension ``karrot`` of the ASGI scope. Without a request, the connection is idle.

    ``received_at`` is the time since which the request waits, by the event loop's clock: the time of its newest bytes,
    or of the previous answer. ``left`` says whether the connection has ended.
    """

    def __init__(self, server: "HttpServer", first: bytes) -> None:
        """``first`` has the bytes that were read from the socket before."""
        super().__init__(server.config, server.server_state, {}, _loop=server.loop)
        self._owner = server
        self._in_head = False
        self._unread = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._refused: Exception | None = None
        self._first = first
        self._parting = False
        self._active: Any = None
        self.received_at = self.loop.time()
        self.left = False
        self.handshake: socket.socket | None = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for a request. Wrap the transport, so that uvicorn closes it through `close`."""
        super().connection_made(transport)
        self.handshake = None
        self.server, self.client = self.server or ("", 0), self.client or ("", 0)  # unknown after a reset
        self.raw = transport
        self.transport = SimpleNamespace(  # type: ignore[assignment]
            write=transport.write, close=self.close, is_closing=lambda: self._parting or transport.is_closing()
        )
        self._owner.rest(self)
        if self._first:
            self.data_received(self._first)
            self._first = b""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.left = True
        if self._active is not None:  # uvicorn marks only the newest request
            self._active.disconnected = True
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._owner.idle.pop(self, None)
        self._owner.release()
        self.pipeline.clear()
        # without this, only the garbage collection would free these objects
        self.transport = self.cycle = self.scope = self._active = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self.received_at = self.loop.time()
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_body_after_wish(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            refused = RefusedHead(400, f"The request is not HTTP: {error}")
            self._refuse(error.__context__ if isinstance(error.__context__, RefusedHead) else refused)
        if self._in_head and self._head_bytes > _HEAD_LIMIT:
            self._refuse(RefusedHead(431, _TOO_LONG))
        elif self._in_head:
            self._head_timer = self._head_timer or self.loop.call_later(self._owner.headers_s, self._end_head)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection if the client waits for an answer."""
        waits = self._is_busy() and not self.cycle.more_body and self.scheme == "http"
        if waits and self._refused is None:
            self.cycle.keep_alive = False
        return waits

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {"karrot": self}  # type: ignore[dict-item]  # uvicorn wants dicts
        self._in_head = self._unread = True
        self._head_bytes = 0
        self._owner.rest(self)

    def on_headers_complete(self) -> None:
        """Check the headers against the limits, and begin the request."""
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        version = self.parser.get_http_version()
        hosts = [name for name, _ in self.headers].count(b"host")
        if version not in ("1.0", "1.1"):
            raise RefusedHead(400, f"Karrot does not speak HTTP/{version}.")
        if len(self.url) + len(self.parser.get_method()) + len("  HTTP/1.1") > _LINE_LIMIT:
            raise RefusedHead(414, f"The request line is longer than {_LINE_LIMIT} bytes.")
        if len(self.headers) > _FIELDS_LIMIT:
            raise RefusedHead(431, f"The request has more than {_FIELDS_LIMIT} headers.")
        if sum(map(len, chain.from_iterable(self.headers))) > _HEAD_LIMIT:
            raise RefusedHead(431, _TOO_LONG)
        if hosts > 1 or (not hosts and version == "1.1"):
            raise RefusedHead(400, "The request must have one header Host.")
        if not self.url.startswith(b"/"):  # a proxy can send a whole URL
            _scheme, separator, rest = self.url.partition(b"://")
            self.url = b"/" + (rest.partition(b"/")[2] if separator else self.url)
        self.expect_100_continue = self.expect_100_continue and version == "1.1"
        super().on_headers_complete()
        # After a header Upgrade, which a server may ignore, the parser reads no more requests.
        if self._owner.stopping or self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and _length(self.headers):
            return  # the body follows, although the parser stops at Upgrade
        self._unread = False
        if self._write_timer is None:  # else the client must first read an earlier answer
            self._owner.idle.pop(self, None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.received_at = self.loop.time()
        if self.left or self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._refused is not None:
            self._refuse(self._refused)
        else:
            self._owner.rest(self)

    def is_unused(self) -> bool:
        """Whether the connection has no request, and no part of one."""
        return not self._unread and not self._is_busy()

    def shutdown(self) -> None:
        """Close the connection after the open requests. `HttpServer` closes idle connections."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def event_has_waited(self) -> None:
        """Remember how long an event waited. A slow client or a scrape would say nothing about the next event."""
        self._owner.waited_s = self.loop.time() - self.received_at

    def whole_body(self) -> bytearray:
        """The body of the current request. Empty if the body is not complete yet."""
        return bytearray() if self.left or self._active.more_body else self._active.body

    async def answer(self, head: bytes, body: bytes, *, keep: bool = True) -> None:
        """Send a whole answer at once, which is cheaper than two ASGI messages. ``head`` is from `head_of`."""
        await self.flow.drain()
        if self.left:
            return
        cycle = self._active
        cycle.keep_alive = cycle.keep_alive and keep
        cycle.response_started = cycle.response_complete = True
        self.raw.write(self._owner.whole(head, body, keep=cycle.keep_alive))
        if not cycle.keep_alive:
            self.close()
        self.on_response_complete()

    def pause_writing(self) -> None:
        """Set a timeout for the client to read its answer."""
        super().pause_writing()
        self._owner.rest(self)
        self._write_timer = self.loop.call_later(self._owner.body_s, self.raw.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_busy() and not self._unread:
            self._owner.idle.pop(self, None)
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def abort(self) -> None:
        """End the connection at once, also during its TLS handshake."""
        if self.handshake is None:
            self.raw.abort()
        else:
            with contextlib.suppress(OSError):  # the client has gone
                self.handshake.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection after its last answer.

        If the client may still be sending a request, read and discard bytes for 2 s. A close with unread bytes would
        reset the connection, and the client could lose the answer.
        """
        if self.handshake is not None:
            self.abort()
        if self.handshake is not None or self.transport.is_closing():
            return
        self._parting = True
        if self._head_timer is not None:
            self._head_timer.cancel()
        if self._unread and self.raw.can_write_eof():
            self.raw.write_eof()
            self.raw.resume_reading()
            self._head_timer = self.loop.call_later(_LINGER_S, self.raw.abort)
        else:
            self.raw.close()
            if self.raw.get_write_buffer_size() and self._write_timer is None:
                self._write_timer = self.loop.call_later(self._owner.body_s, self.raw.abort)

    def _read_body_after_wish(self, data: bytes) -> None:
        """Read the body of a request with the header Upgrade, by a new parser that does not see this header."""
        if length := _length(self.headers):
            rest = SimpleNamespace(on_body=self.on_body, on_message_complete=self.on_message_complete)
            self.parser = httptools.HttpRequestParser(rest)
            self.parser.feed_data(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % length + data[:length])

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._active = cycle
        self.tasks.add(self.loop.create_task(self._serve(cycle, app)))

    async def _serve(self, cycle: Any, app: Any) -> None:
        try:
            await app(cycle.scope, cycle.receive, cycle.send)
        finally:
            self.tasks.discard(asyncio.current_task())

    def _is_busy(self) -> bool:
        """Whether a request waits for its answer."""
        return self.cycle is not None and not self.cycle.response_complete

    def _end_head(self) -> None:
        """Refuse headers that did not arrive in time. During an answer to an earlier request, restart the timer."""
        self._head_timer = None
        if self._is_busy():
            self._head_timer = self.loop.call_later(self._owner.headers_s, self._end_head)
        else:
            self._refuse(IncompleteRequest("The request did not arrive completely in time."))

    def _refuse(self, error: Exception) -> None:
        """Refuse a request before it reaches the application, but after the answers to earlier requests."""
        if self._is_busy():
            self._refused = error
            self.flow.pause_reading()
            return
        self.raw.write(self._owner.refused(error, self.client[0]))  # type: ignore[index]
        self._unread = True
        self.close()


class HttpServer(uvicorn.Server):
    """Accepts connections for one worker, and serves them until gunicorn stops the worker.

    ``refusal(error, client)`` counts and answers a request that does not reach the application. ``tls`` returns the
    TLS context for a new connection. ``most`` limits the connections. ``is_event(bytes)`` recognizes a whole event.
    """

    def __init__(
        self,
        application: Any,
        worker: Any,
        refusal: Callable[[Exception, str], Answer],
        is_event: Callable[[bytes], bool],
        *,
        headers_s: float,
        body_s: float,
        tls: Callable[[], ssl.SSLContext] | None = None,
        most: int = 4096,
        grace_s: int = 8,
        idle_s: float = _IDLE_S,
    ) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # uvicorn warns of each request that is not HTTP
        config = uvicorn.Config(
            application,
            http=Connection,
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=grace_s,
        )
        super().__init__(config)
        self._refusal, self._is_event = refusal, is_event
        self.headers_s, self.body_s, self.idle_s = headers_s, body_s, idle_s
        # The connections that wait for their client: for a request, for the rest of one, or until it reads its answer.
        # Each has the time since which it waits or was last answered, the earliest first.
        self.idle: dict[Connection, float] = {}
        self.stopping = self._listens = False
        self._worker, self._tls, self._most = worker, tls, most
        self.waited_s = 0.0  # the wait of the last event
        self._open, self._at_once = 0, _FEW

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        """Leave the signals to gunicorn."""
        return contextlib.nullcontext()

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.servers = []
        self._listeners = sockets or ()
        self._listen()
        self._close_idle()
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether the worker must stop. uvicorn calls this method ten times a second."""
        await super().on_tick(counter)
        self._worker.notify()
        if self._tls is not None:
            self._tls()  # a worker without connections also checks the files for changes
        return not self._worker.alive or self._worker.ppid != os.getppid()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, answer the requests that clients have sent, and close the connections."""
        self._listen(wanted=False)
        self.stopping = True
        self._at_once = self._most
        for listener in self._listeners:  # without this, clients in the backlog would be disconnected
            self._accept(listener)
        self.idle_s = min(self.idle_s, _LAST_REQUEST_S)
        self.idle = dict.fromkeys(filter(Connection.is_unused, self.idle), self.loop.time())
        self._close_idle()
        await super().shutdown(sockets)

    def release(self) -> None:
        self._open -= 1
        if self._open < self._most:
            self._listen()

    def rest(self, connection: Connection) -> None:
        """Mark a connection as idle. A full worker ends idle connections to accept new ones."""
        self.idle.pop(connection, None)  # so that it comes last
        self.idle[connection] = self.loop.time()
        self._listen()

    def _close_idle(self) -> None:
        """Close the connections that have been idle for too long, and schedule the next call."""
        now = self.loop.time()
        while self.idle and next(iter(self.idle.values())) + self.idle_s <= now:
            self._longest_idle().close()
        self.loop.call_at(next(iter(self.idle.values()), now) + self.idle_s, self._close_idle)

    def _longest_idle(self) -> Connection:
        """Remove the connection that has been idle for longest."""
        connection = next(iter(self.idle))
        del self.idle[connection]
        return connection

    def _listen(self, *, wanted: bool = True) -> None:
        if self._listens != wanted and not self.stopping:
            self._listens = wanted
            for listener in self._listeners:
                self.loop.remove_reader(listener.fileno())
                if wanted:
                    self.loop.add_reader(listener.fileno(), self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept 2 waiting connections, and four times as many in each next turn of the loop, while more are waiting.

        So other workers also get connections, and a burst is accepted before its clients time out. A busy worker
        accepts all that wait: its turns are long, and when the queue of connections is full, the kernel drops new ones
        for a second or more. At the limit, a new connection replaces the connection that has been idle for longest.
        """
        for _ in range(self._at_once):
            is_full = self._open >= self._most
            if is_full and not self.idle:
                self._listen(wanted=False)  # until a connection ends or is idle
                return
            try:
                sock, address = listener.accept()
            except OSError:  # no connection waits, the client has gone, or the system has no free file
                self._at_once = _MANY if len(self.server_state.tasks) >= _BUSY else _FEW
                return
            sock.setblocking(False)
            first = b""
            if self._at_once > _FEW and self._tls is None:
                # In a burst, the requests have already arrived, so their wait begins now.
                with contextlib.suppress(OSError):
                    first = sock.recv(_HEAD_LIMIT)
            waiting = len(self.server_state.tasks)
            is_late = any(waiting >= most and self.waited_s >= late_s for most, late_s in _FULL)
            if first and is_late and self._is_event(first):
                # A refusal costs a small part of an event, so at three times the capacity, events are still served.
                with contextlib.suppress(OSError):
                    sock.send(self.refused(OverloadedError("The request waited too long for its turn"), address[0]))
                sock.close()
                continue
            if is_full:
                self._longest_idle().abort()  # at once, although a part of a request or of an answer may be open
            self._open += 1
            task = self.loop.create_task(self._connect(sock, first))
            self.server_state.tasks.add(task)
            task.add_done_callback(self.server_state.tasks.discard)
        self._at_once = min(4 * self._at_once, _MANY)

    def refused(self, error: Exception, client: str) -> bytes:
        """Count a refused request that does not reach the application, and make its answer."""
        answer = self._refusal(error, client)
        return self.whole(head_of(answer), answer.body, keep=False)

    def whole(self, head: bytes, body: bytes, *, keep: bool) -> bytes:
        """Join the head, the date, ``connection: close`` unless ``keep`` is true, and the body of an answer."""
        date = b"".join(b"%b: %b\r\n" % each for each in self.server_state.default_headers)
        return b"%b%b%b\r\n%b" % (head, date, b"" if keep else b"connection: close\r\n", body)

    async def _connect(self, sock: socket.socket, first: bytes) -> None:
        how: dict[str, Any] = {}
        connection = Connection(self, first)
        if self._tls is not None:
            connection.handshake = sock
            self.rest(connection)
            limits = {"ssl_handshake_timeout": self.headers_s, "ssl_shutdown_timeout": self.headers_s}
            how = {"ssl": self._tls(), **limits}
        try:
            await self.loop.connect_accepted_socket(lambda: connection, sock, **how)
        except OSError:
            self.idle.pop(connection, None)
            sock.close()
            self.release()


def head_of(answer: Answer) -> bytes:
    """Encode the status line and the headers of an answer, with its Content-Length."""
    headers = [*answer.headers, ("content-length", str(len(answer.body)))]
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    return "\r\n".join([*lines, *(f"{name.lower()}: {value}" for name, value in headers), ""]).encode("latin-1")


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The Content-Length. 0 without this header."""
    return next((int(value) for name, value in headers if name == b"content-length"), 0)
