"""One client connection: heads and bodies in, replies out, each wait with a deadline.

httptools decides what is valid HTTP. Nothing here knows what a request means.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import httptools

from karrot.eventlog.base import OverloadedError

LARGE = 64 << 10
"""A body with more bytes counts against `LargeBodies`, and a thread parses it."""

_LARGE_TOGETHER = 32 << 20
_HEAD_LIMIT = 64 << 10
_LINE_LIMIT = 4094
_FIELDS_LIMIT = 100
_LINGER_S = 2.0
_LINGER_BYTES = 32 << 20
END_OF_HEAD = b"\r\n\r\n"


class IncompleteRequest(Exception):  # noqa: N818 - it ends a request, not the program
    """A request did not arrive completely within its time."""


class RefusedHead(Exception):  # noqa: N818 - it ends a request, not the program
    """The head of a request is not valid HTTP, or is too long. ``status`` is the status of the answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class RequestHead:
    """The request line and the headers of a request.

    ``path`` is decoded as WSGI wants it: each character stands for one byte. The names in ``headers`` have small
    letters. Headers of the same name are one value with commas. ``version`` is ``1.0`` or ``1.1``. ``length`` is
    ``None`` without a Content-Length.
    """

    __slots__ = ("fields", "headers", "keeps_alive", "method", "path", "query", "target", "version")

    def __init__(self, raw: bytes) -> None:
        """Parse a complete head, with the empty line at its end. Raises `RefusedHead`."""
        self.fields = 0
        self.headers: dict[str, str] = {}
        self.target = ""
        parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            pass  # HTTP/1.1 lets a server ignore the header Upgrade
        except httptools.HttpParserError as error:
            raise RefusedHead(400, f"The request is not HTTP: {error}") from None
        self.version = parser.get_http_version()
        self.method = parser.get_method().decode("ascii")
        self.keeps_alive = self.version == "1.1" and "close" not in self.headers.get("connection", "").lower()
        self.path, self.query = _path_and_query(self.target)
        self._check(raw)

    @property
    def length(self) -> int | None:
        """The announced size of the body in bytes."""
        announced = self.headers.get("content-length")
        return None if announced is None else int(announced)

    @property
    def announces_a_body(self) -> bool:
        """Whether bytes of a body follow the head."""
        return bool(self.length) or "transfer-encoding" in self.headers

    @property
    def waits_for_continue(self) -> bool:
        """Whether the client sends the body only after ``100 Continue``."""
        return self.headers.get("expect", "").lower() == "100-continue"

    def on_url(self, url: bytes) -> None:
        """Take the target from httptools."""
        self.target = url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header from httptools."""
        self.fields += 1
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        self.headers[key] = f"{self.headers[key]},{text}" if key in self.headers else text

    def _check(self, raw: bytes) -> None:
        if self.version not in ("1.0", "1.1"):
            raise RefusedHead(400, f"Karrot does not speak HTTP/{self.version}.")
        if raw.find(b"\r\n") > _LINE_LIMIT:
            raise RefusedHead(414, f"The request line is longer than {_LINE_LIMIT} bytes.")
        if self.fields > _FIELDS_LIMIT:
            raise RefusedHead(431, f"The request has more than {_FIELDS_LIMIT} headers.")
        if "," in self.headers.get("host", ""):
            raise RefusedHead(400, "The request has more than one Host.")


class HttpReply(NamedTuple):
    """A complete answer. Its length, its date and its connection header are added when it is sent."""

    status: int
    headers: Iterable[tuple[str, str]]
    body: bytes

    def to_bytes(self, *, keeps_alive: bool) -> bytes:
        """The answer as it is sent."""
        head = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}", _date(int(time.time()))]
        head += [f"{name}: {value}" for name, value in self.headers]
        head += [f"Content-Length: {len(self.body)}", *(() if keeps_alive else ("Connection: close",))]
        return "\r\n".join([*head, "", ""]).encode("latin-1") + self.body


class LargeBodies:
    """Counts the bytes of large bodies from their arrival to their answer, over all connections of a worker.

    Small bodies do not count, because the number of connections limits them.
    """

    def __init__(self) -> None:
        self.held = 0

    def grow(self, by: int) -> None:
        """Count ``by`` more bytes, or fewer if it is negative. Raises `OverloadedError` at the limit."""
        if self.held + by > _LARGE_TOGETHER:
            raise OverloadedError("Too many large bodies are arriving. Send the event again.")
        self.held += by


class Connection(asyncio.Protocol):
    """One connection. One coroutine at a time reads from it or sends to it.

    ``received_at`` is since when the request waits for its turn, by the clock of the event loop: since its newest
    bytes, or since the answer before. ``waits`` says whether the connection came with a request that nobody has served
    yet.
    """

    def __init__(self, large_bodies: LargeBodies, first: bytes = b"", *, send_s: float) -> None:
        """``first`` are bytes that have been read already. A send may wait ``send_s`` for the client."""
        self._loop = asyncio.get_running_loop()
        self._large_bodies = large_bodies
        self._send_s = send_s
        self._buffer = bytearray(first)
        self._room = _HEAD_LIMIT
        self._ended = False
        self._lost = False
        self._writable = True
        self._discarded: int | None = None
        self._large = 0
        self._unread = False
        self._idle = False
        self._timer: asyncio.TimerHandle | None = None
        self._news: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport
        self.received_at = self._loop.time()
        self.waits = END_OF_HEAD in first
        self.client: tuple[str, int] = ("", 0)
        self.server: tuple[str, int] = ("", 0)
        self.encrypted = False

    def connection_made(self, transport: Any) -> None:
        """Keep the transport, the addresses, and whether the connection has TLS."""
        self._transport = transport
        self.client = (transport.get_extra_info("peername") or self.client)[:2]  # unknown after a reset
        self.server = (transport.get_extra_info("sockname") or self.server)[:2]
        self.encrypted = transport.get_extra_info("ssl_object") is not None

    def data_received(self, data: bytes) -> None:
        """Keep the bytes. Stop reading while more bytes wait than anybody asked for."""
        if self._discarded is not None:
            self._discarded += len(data)
            self._ended = self._ended or self._discarded > _LINGER_BYTES
        else:
            self.received_at = self._loop.time()
            self._buffer += data
            if len(self._buffer) > self._room:
                self._transport.pause_reading()
        self._tell()

    def eof_received(self) -> bool:
        """Remember that the client sends no more. It may still wait for an answer."""
        self._ended = True
        self._tell()
        return not self.encrypted

    def connection_lost(self, _error: Exception | None) -> None:
        """Remember that the connection is closed in both directions."""
        self._ended = self._lost = True
        self._tell()

    def pause_writing(self) -> None:
        """Remember that the client reads more slowly than it gets."""
        self._writable = False

    def resume_writing(self) -> None:
        """Remember that the client has caught up."""
        self._writable = True
        self._tell()

    async def read_head(self, *, idle_s: float, head_s: float) -> RequestHead | None:
        """The head of the next request. ``None`` if the client sends none within ``idle_s``, or leaves.

        Raises `RefusedHead`. Raises `IncompleteRequest` if ``head_s`` after the first bytes the head is not complete.
        """
        if not self._buffer and not await self._first_bytes(idle_s):
            return None
        self._unread = True
        deadline = self._loop.time() + head_s
        searched = 0
        while (end := self._buffer.find(END_OF_HEAD, max(0, searched - 3))) < 0:
            searched = len(self._buffer)
            if searched > _HEAD_LIMIT:
                break
            if self._ended:
                return None
            await self._next_bytes(deadline)
        if max(searched, end) > _HEAD_LIMIT:
            raise RefusedHead(431, f"The request headers are longer than {_HEAD_LIMIT >> 10} KiB.")
        head = RequestHead(self._take(end + len(END_OF_HEAD)).lstrip(b"\r\n"))
        self._unread = head.announces_a_body
        return head

    async def read_body(self, length: int, seconds: float) -> bytes:
        """A body of ``length`` bytes. Raises `IncompleteRequest`, `OverloadedError` or `ConnectionError`."""
        self._make_room(length + _HEAD_LIMIT)
        deadline = self._loop.time() + seconds
        while len(self._buffer) < length:
            self._count_large(len(self._buffer))
            if self._ended:
                raise ConnectionResetError("the client left during the body")
            await self._next_bytes(deadline)
        self._count_large(length)
        self._unread = False
        return self._take(length)

    def has_bytes(self, count: int) -> bool:
        """Whether so many bytes have arrived that nobody has read."""
        return len(self._buffer) >= count

    def end_request(self) -> None:
        """Stop counting the body of an answered request. A next request that has arrived already begins to wait now."""
        self._count_large(0)
        self.received_at = self._loop.time()

    def send(self, data: bytes) -> None:
        """Send the bytes. Never blocks: the socket's buffer has room for an answer of a few kilobytes."""
        self._transport.write(data)

    async def send_and_wait(self, data: bytes) -> None:
        """Send the bytes, and wait while the client reads too slowly. Raises `TimeoutError` or `ConnectionError`."""
        if self._lost:
            raise ConnectionResetError("the client left before the end of the answer")
        self._transport.write(data)
        deadline = self._loop.time() + self._send_s
        while not self._writable:
            await self._wait(deadline)
            if self._lost:
                raise ConnectionResetError("the client left before the end of the answer")

    def end_when_idle(self, seconds: float) -> None:
        """If no request is arriving, wait at most this long for one."""
        if self._idle and self._news is not None and self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_later(seconds, _expire, self._news)

    async def part(self) -> None:
        """Close the connection after its last answer.

        If the client may still be sending a request, read and discard for 2 s: a close with unread bytes would destroy
        the answer on its way.
        """
        self._count_large(0)
        deadline = self._loop.time() + _LINGER_S
        self._discarded = 0
        self._transport.resume_reading()
        if not self._lost:
            with contextlib.suppress(OSError):
                if (self._unread or self._buffer) and self._transport.can_write_eof():
                    self._transport.write_eof()
                    while not self._ended:
                        await self._wait(deadline)
                self._transport.close()
                while not self._lost:
                    await self._wait(deadline)
        self._transport.abort()

    async def _first_bytes(self, seconds: float) -> bool:
        """Wait for the first bytes of a request. False if none come."""
        deadline = self._loop.time() + seconds
        self._idle = True
        try:
            while not self._buffer and not self._ended:
                await self._wait(deadline)
        except TimeoutError:
            return False
        finally:
            self._idle = False
        return bool(self._buffer)

    async def _next_bytes(self, deadline: float) -> None:
        try:
            await self._wait(deadline)
        except TimeoutError:
            raise IncompleteRequest("The request did not arrive completely in time.") from None

    def _take(self, count: int) -> bytes:
        """Take bytes that have arrived."""
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        self._make_room(_HEAD_LIMIT)
        return taken

    def _make_room(self, room: int) -> None:
        """Let so many bytes wait before reading stops."""
        self._room = room
        if len(self._buffer) <= room:
            self._transport.resume_reading()  # does nothing if reading has not stopped

    async def _wait(self, deadline: float) -> None:
        """Wait until something happens on the connection. Raises `TimeoutError` at the deadline."""
        self._news = self._loop.create_future()
        self._timer = self._loop.call_at(deadline, _expire, self._news)
        try:
            await self._news
        finally:
            self._timer.cancel()
            self._news = None

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _count_large(self, size: int) -> None:
        large = size if size > LARGE else 0
        self._large_bodies.grow(large - self._large)
        self._large = large


def _expire(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_exception(TimeoutError())


def _path_and_query(target: str) -> tuple[str, str]:
    """The decoded path and the query. A proxy can send a whole URL as the target."""
    if not target.startswith("/"):
        _scheme, separator, rest = target.partition("://")
        target = f"/{rest.partition('/')[2]}" if separator else f"/{target}"
    path, _, query = target.partition("#")[0].partition("?")
    return (unquote_to_bytes(path).decode("latin-1") if "%" in path else path), query


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return f"Date: {formatdate(second, usegmt=True)}"
