"""The HTTP server of a worker: uvicorn's connections, with time limits and bounds of Karrot's own.

uvicorn and httptools decide what is valid HTTP. `HttpServer` accepts the connections, so it knows how many there are,
and gives each the newest TLS certificate. docs/decisions/0028 says what uvicorn
does not do itself.
"""

import asyncio
import contextlib
import io
import logging
import os
import socket
import ssl
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote_to_bytes

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from karrot.eventlog.base import OverloadedError
from karrot.web.webhook import Answer, IncompleteRequest, RefusedHead

_IDLE_S = 75
"""Longer than Burrow's interval, because closing an idle connection can lose Burrow's next POST."""

_LAST_REQUEST_S = 2.0
"""How long a stopping worker waits for requests that are on their way on open connections."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FEW, _MANY = 2, 1024
_FULL = ((3072, 0.0), (1024, 0.3), (64, 0.8))
"""Events on new connections are refused without a coroutine if so many requests wait, and the answer before came after
more than so many seconds. A herd on a worker that was idle is accepted."""

_HEAD_LIMIT = 64 << 10
_LINE_LIMIT = 4094
_FIELDS_LIMIT = 100
_LINGER_S = 2.0
_PIECE = 64 << 10

Scope = dict[str, Any]
Message = dict[str, Any]
WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Client:
    """What the application may know of a connection. It is the extension ``karrot`` of the ASGI scope.

    ``received_at`` is since when the request waits for its turn, by the clock of the event loop: since its newest
    bytes, or since the answer before. ``left`` says whether the connection has ended. ``abort`` ends it at once, so the
    client sees that its answer is not complete.
    """

    __slots__ = ("abort", "left", "received_at")

    def __init__(self, abort: Callable[[], None], received_at: float) -> None:
        self.abort = abort
        self.received_at = received_at
        self.left = False


class Connection(HttpToolsProtocol):
    """One connection. It is idle if no byte of a request has come that is not answered yet."""

    def __init__(self, server: "HttpServer", first: bytes) -> None:
        """``first`` are bytes that have been read already."""
        super().__init__(server.config, server.server_state, {}, _loop=server.loop)
        self._owner = server
        self._in_head = False
        self._unread = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._refused: Exception | None = None
        self._first = first
        self._head: bytes | None = None
        self._parting = False

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request. ``self.transport`` closes in two steps."""
        super().connection_made(transport)
        self.server, self.client = self.server or ("", 0), self.client or ("", 0)  # unknown after a reset
        self.raw = transport
        self.transport = SimpleNamespace(  # type: ignore[assignment]
            write=self._write, close=self.close, is_closing=lambda: self._parting or transport.is_closing()
        )
        self._extensions = {"karrot": Client(transport.abort, self.loop.time())}
        self._rest()
        if self._owner.stopping:
            self.shutdown()
        if self._first:
            self.data_received(self._first)
            self._first = b""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._extensions["karrot"].left = True
        for timer in (self._head_timer, self._write_timer, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()
        self._owner.idle.pop(self, None)
        self._owner.release()
        self.pipeline.clear()
        self.transport = self.cycle = None  # type: ignore[assignment]  # or only the garbage collection would free them

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the parser, unless the request is refused already."""
        if self.transport.is_closing():
            return
        self._owner.idle.pop(self, None)
        self._extensions["karrot"].received_at = self.loop.time()
        if self._in_head:
            self._head_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_body_after_wish(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(
                cause if isinstance(cause, RefusedHead) else RefusedHead(400, f"The request is not HTTP: {error}")
            )
        if self._in_head and self._head_bytes > _HEAD_LIMIT:
            self._refuse(_too_long())
        elif self._in_head:
            self._head_timer = self._head_timer or self.loop.call_later(self._owner.headers_s, self._end_head)
        elif not self._unread and not self._is_busy():  # there were only empty lines
            self._rest()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection if the client waits for an answer."""
        waits = self._is_busy() and not self.cycle.more_body and self.scheme == "http"
        if waits and self._refused is None:
            self.cycle.keep_alive = False
        return waits

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item]  # uvicorn wants dicts
        self._in_head = self._unread = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """Check the limits of a head, and begin the request."""
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        version = self.parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if version not in ("1.0", "1.1"):
            raise RefusedHead(400, f"Karrot does not speak HTTP/{version}.")
        if len(self.url) + len(self.parser.get_method()) + len("  HTTP/1.1") > _LINE_LIMIT:
            raise RefusedHead(414, f"The request line is longer than {_LINE_LIMIT} bytes.")
        if len(self.headers) > _FIELDS_LIMIT:
            raise RefusedHead(431, f"The request has more than {_FIELDS_LIMIT} headers.")
        if sum(len(name) + len(value) for name, value in self.headers) > _HEAD_LIMIT:
            raise _too_long()
        if hosts > 1 or (not hosts and version == "1.1"):
            raise RefusedHead(400, "The request must have one header Host.")
        if not self.url.startswith(b"/"):  # a proxy can send a whole URL
            _scheme, separator, rest = self.url.partition(b"://")
            self.url = b"/" + (rest.partition(b"/")[2] if separator else self.url)
        self.expect_100_continue = self.expect_100_continue and version == "1.1"
        super().on_headers_complete()
        # After a wish for another protocol, which HTTP lets a server ignore, the parser reads no more requests.
        if self._owner.stopping or self.parser.should_upgrade():
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """Remember that the client has sent its request completely."""
        if self.parser.should_upgrade() and _length(self.headers):
            return  # the body comes, whatever the parser thinks of the wish for another protocol
        self._unread = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has arrived already."""
        self._flush()
        super().on_response_complete()
        now, client = self.loop.time(), self._extensions["karrot"]
        self._owner.waited_s, client.received_at = now - client.received_at, now
        if self.transport.is_closing() or self._is_busy():
            return
        if self._refused is not None:
            self._refuse(self._refused)
        elif not self._in_head:
            self._owner.idle[self] = None

    def shutdown(self) -> None:
        """Close the connection after the requests that have arrived, or that arrive very soon."""
        if self in self._owner.idle:
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(_LAST_REQUEST_S, self.timeout_keep_alive_handler)
        elif self.cycle is not None:
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        """Give the client some time to read its answer."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._owner.body_s, self.raw.abort)

    def resume_writing(self) -> None:
        """Go on with the answer."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def close(self) -> None:
        """Close the connection after its last answer.

        If the client may still be sending a request, read and discard for 2 s: a close with unread bytes would destroy
        the answer on its way.
        """
        if self.transport.is_closing():
            return
        self._flush()
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
        """Read the body of a request that wishes for another protocol with a parser that does not know of the wish."""
        if length := _length(self.headers):
            rest = SimpleNamespace(on_body=self.on_body, on_message_complete=self.on_message_complete)
            self.parser = httptools.HttpRequestParser(rest)
            self.parser.feed_data(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % length + data[:length])

    def _write(self, data: bytes) -> None:
        """Send the head of an answer together with the beginning of its body, to save a system call."""
        if self._head is None and data != _CONTINUE:
            self._head = data
        else:
            self.raw.write(self._head + data if self._head else data)
            self._head = self._head and b""

    def _flush(self) -> None:
        """End an answer. One without a body is only a head."""
        if self._head:
            self.raw.write(self._head)
        self._head = None

    def _is_busy(self) -> bool:
        """Whether a request has arrived that is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def _rest(self) -> None:
        self._owner.idle[self] = None
        self.timeout_keep_alive_task = self.loop.call_later(self._owner.idle_s, self.timeout_keep_alive_handler)

    def _end_head(self) -> None:
        """End the time of a head. It begins again while an answer to an earlier request is not complete."""
        self._head_timer = None
        if self._is_busy():
            self._head_timer = self.loop.call_later(self._owner.headers_s, self._end_head)
        else:
            self._refuse(IncompleteRequest("The request did not arrive completely in time."))

    def _refuse(self, error: Exception) -> None:
        """Refuse a request that the application does not see, after the answers to earlier ones."""
        if self._is_busy():
            self._refused = error
            self.flow.pause_reading()
            return
        self.raw.write(self._owner.refused(error, self.client[0]))  # type: ignore[index]
        self._unread = True
        self.close()


class HttpServer(uvicorn.Server):
    """Accepts connections for one worker, and serves them until gunicorn stops the worker.

    ``refusal(error, client)`` counts and answers a request that the application does not see. ``tls`` is the
    certificate for a new connection. ``most`` limits the connections. ``is_event(bytes)`` recognizes a whole event.
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
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it warns of each request that is not HTTP
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
            timeout_keep_alive=idle_s,  # type: ignore[arg-type]
            timeout_graceful_shutdown=grace_s,
        )
        super().__init__(config)
        self._refusal = refusal
        self._is_event = is_event
        self.headers_s = headers_s
        self.body_s = body_s
        self.idle_s = idle_s
        self.idle: dict[Connection, None] = {}
        """The connections without a request, the one that has waited longest first."""
        self.stopping = False
        self._worker = worker
        self._tls = tls
        self._most = most
        self.waited_s = 0.0
        """How long the request waited that was answered last."""
        self._open = 0
        self._at_once = _FEW

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        """Leave the signals to gunicorn."""
        return contextlib.nullcontext()

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """Accept connections."""
        self.loop = asyncio.get_running_loop()
        self.servers = []
        self._listeners = sockets or ()
        self._listen()
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        """Live on, unless gunicorn or its parent process ends. uvicorn calls this ten times a second."""
        await super().on_tick(counter)
        self._worker.notify()
        if self._tls is not None:
            self._tls()  # so a worker without connections also sees each change of the files
        return not self._worker.alive or self._worker.ppid != os.getppid()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listeners, answer what is on its way, and close the connections."""
        self.stopping = True
        self._pause_listening()
        self._at_once = self._most
        for listener in self._listeners:  # or the clients that wait to be accepted would be disconnected
            self._accept(listener)
        await super().shutdown(sockets)

    def release(self) -> None:
        """Forget a connection that has ended."""
        self._open -= 1
        if self._open == self._most - 1 and not self.stopping:
            self._listen()

    def _is_full(self) -> bool:
        waiting = len(self.server_state.tasks)
        return any(waiting >= most and self.waited_s >= late_s for most, late_s in _FULL)

    def _listen(self) -> None:
        for listener in self._listeners:
            self.loop.add_reader(listener.fileno(), self._accept, listener)

    def _pause_listening(self) -> None:
        for listener in self._listeners:
            self.loop.remove_reader(listener.fileno())

    def _accept(self, listener: socket.socket) -> None:
        """Accept 2 waiting connections, and four times as many in each further turn of the loop while more are waiting.

        So another worker can take its share, and a herd is accepted before its clients give up. If there are too many
        connections, close those that have been idle for longest.
        """
        for _ in range(self._at_once):
            if self._open >= self._most:
                if not self.idle:
                    self._pause_listening()
                    return
                idle = next(iter(self.idle))
                del self.idle[idle]
                idle.raw.abort()
            try:
                sock, address = listener.accept()
            except OSError:  # no connection waits, or the client has left, or the system has no room for it
                self._at_once = _FEW
                return
            sock.setblocking(False)
            # In a burst, the requests have come by now, and count as waiting at once.
            first = _received(sock) if self._at_once > _FEW and self._tls is None else b""
            if first and self._is_full() and self._is_event(first):
                # This costs a small part of an event. So under three times the load there is time for events.
                with contextlib.suppress(OSError):
                    sock.send(self.refused(OverloadedError("The request waited too long for its turn"), address[0]))
                sock.close()
                continue
            self._open += 1
            task = self.loop.create_task(self._connect(sock, first))
            self.server_state.tasks.add(task)
            task.add_done_callback(self.server_state.tasks.discard)
        self._at_once = min(4 * self._at_once, _MANY)

    def refused(self, error: Exception, client: str) -> bytes:
        """Count a request that the application does not see, and make its answer."""
        answer = self._refusal(error, client)
        names = [(name.decode(), value.decode()) for name, value in self.server_state.default_headers]
        names += [*answer.headers, ("Content-Length", str(len(answer.body))), ("Connection", "close")]
        lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}", *(f"{n}: {v}" for n, v in names)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + answer.body

    async def _connect(self, sock: socket.socket, first: bytes) -> None:
        how: dict[str, Any] = {}
        if self._tls is not None:
            limits = {"ssl_handshake_timeout": self.headers_s, "ssl_shutdown_timeout": self.headers_s}
            how = {"ssl": self._tls(), **limits}
        try:
            await self.loop.connect_accepted_socket(lambda: Connection(self, first), sock, **how)
        except OSError:
            sock.close()
            self.release()


def _received(sock: socket.socket) -> bytes:
    """What a client has sent already. A client that waited to be accepted has sent its request by now."""
    try:
        return sock.recv(_HEAD_LIMIT)
    except OSError:
        return b""


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The announced size of a body. 0 without a Content-Length."""
    return next((int(value) for name, value in headers if name == b"content-length"), 0)


def _too_long() -> RefusedHead:
    return RefusedHead(431, f"The request headers are longer than {_HEAD_LIMIT >> 10} KiB.")


def wsgi_pieces(
    application: WsgiApplication, scope: Scope, headers: dict[str, str]
) -> Generator[list[Message], None, None]:
    """Run a WSGI application (PEP 3333) without a body. Give its answer as messages, a long one in pieces."""
    start: Message = {"type": "http.response.start"}
    unsent = bytearray()

    def start_response(status: str, headers: Iterable[tuple[str, str]], _exc_info: Any = None) -> Any:
        start["status"] = int(status[:3])
        start["headers"] = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        return unsent.extend

    answer = application(_environ(scope, headers), start_response)
    messages = [start]
    try:
        for data in answer:
            unsent += data
            if len(unsent) >= _PIECE and scope["http_version"] != "1.0":  # which has no chunks: it needs a length
                yield [*messages, {"type": "http.response.body", "body": bytes(unsent), "more_body": True}]
                messages = []
                unsent.clear()
        if messages:
            names = [name for name, _ in start["headers"]]
            if b"content-length" not in names and start["status"] not in (204, 304):
                start["headers"].append((b"content-length", b"%d" % len(unsent)))
            if "content-length" in headers or "transfer-encoding" in headers:
                start["headers"].append((b"connection", b"close"))  # nobody reads the body of this request
        yield [*messages, {"type": "http.response.body", "body": bytes(unsent), "more_body": False}]
    finally:
        getattr(answer, "close", lambda: None)()


def _environ(scope: Scope, headers: dict[str, str]) -> dict[str, Any]:
    named = {
        f"HTTP_{name.upper().replace('-', '_')}": value
        for name, value in headers.items()
        # A name with an underscore could pass for another header. A body is not read, and no protocol is changed.
        if "_" not in name and name not in ("content-type", "content-length", "transfer-encoding", "upgrade")
    }
    return named | {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": scope["server"][0],
        "SERVER_PORT": str(scope["server"][1]),
        "REMOTE_ADDR": scope["client"][0],
        "CONTENT_TYPE": headers.get("content-type", ""),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
