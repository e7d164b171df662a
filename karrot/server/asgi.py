"""Answers a worker's requests over ASGI: stores events without Flask, and passes others to Flask in threads.

The coroutine of an event passes the event to the log's writer, and answers after the commit. No thread waits for a
client's request. Of other requests, only a small body of a POST about mutes is read.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog

from karrot.eventlog.base import TURN_SHARE, OverloadedError, UnconfirmedError
from karrot.server.http import Connection, head_of
from karrot.server.wsgi import Message, Scope, WsgiApplication, wsgi_pieces
from karrot.web import webhook
from karrot.web.context import WebContext

if TYPE_CHECKING:
    from karrot.intake import PendingAppend

LARGE = 64 << 10
"""A body with more bytes counts against the limit of all large bodies, and is parsed in a thread."""

ANSWER_S = 2.0
"""The seconds that a request may wait for the commit of its event, or for a thread."""

_SERVE_SHARE = TURN_SHARE - 0.05
"""An event must be served within this share of `ANSWER_S`. A commit must begin within `TURN_SHARE` of `ANSWER_S`."""

_LARGE_TOGETHER = 32 << 20
_SMALL = 16 << 10
_ACCEPTED = head_of(webhook.ACCEPTED)
_QUICK_PATHS = ("/healthz", "/readyz", "/heartbeat")
_SCRAPED = "/metrics"
_WITH_BODY = ("/mute", "/mutes")

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_log = structlog.get_logger(__name__)


class AsgiApplication:
    """Serves the requests of one worker. Health checks, scrapes and pages have separate thread pools."""

    def __init__(self, context: WebContext, wsgi: WsgiApplication, *, threads: int, answer_s: float = ANSWER_S) -> None:
        self._context = context
        self._wsgi = wsgi
        self._answer_s = answer_s
        self._paths = webhook.paths(context)
        self._stored: deque[asyncio.Future[None]] = deque()
        self._woken = False
        self._waiting: dict[asyncio.Future[None], tuple[PendingAppend, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.large_bytes = 0
        """The bytes of large bodies in requests without an answer yet."""
        self._quick = ThreadPoolExecutor(threads, "quick")
        self._scrapes = ThreadPoolExecutor(max(2, threads // 4), "scrape")
        self._pages = ThreadPoolExecutor(max(2, threads // 4), "reader")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in webhook.METHODS and f"/{scope['path'].strip('/')}" in self._paths:
            await self._take_event(scope, receive)
        else:
            await self._call_flask(scope, receive, send)

    def close(self) -> None:
        """End each thread after its current request."""
        for pool in (self._quick, self._scrapes, self._pages):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _take_event(self, scope: Scope, receive: Receive) -> None:
        headers = _headers(scope)
        client: Connection = scope["extensions"]["karrot"]
        body, held = bytearray(), 0
        try:
            length = webhook.admit(self._context, headers)
            body = client.whole_body()
            if len(body) < length or length > LARGE:
                async with asyncio.timeout(self._context.body_timeout):
                    body = bytearray()
                    while len(body) < length:
                        message = await receive()  # also sends 100 Continue to a client that waits for it
                        if message["type"] == "http.disconnect":
                            return
                        body += message["body"]
                        if len(body) > LARGE:
                            self._hold(len(body) - held)
                            held = len(body)
            try:
                await self._store(headers, bytes(body), client)
            finally:
                client.event_has_waited()
            await client.answer(_ACCEPTED, webhook.ACCEPTED.body)
        except Exception as error:  # noqa: BLE001 - the outermost handler of an event: `refusal` logs the error
            if isinstance(error, TimeoutError):
                error = webhook.IncompleteRequest(f"only {len(body)} bytes arrived in time")
            await _refuse(scope, webhook.refusal(self._context, error, scope["client"][0]))
        finally:
            self.large_bytes -= held

    def _hold(self, more: int) -> None:
        """Count bytes of large bodies. The limit of connections also limits small bodies, so these do not count."""
        if self.large_bytes + more > _LARGE_TOGETHER:
            raise OverloadedError("Too many large bodies are arriving. Send the event again.")
        self.large_bytes += more

    async def _store(self, headers: dict[str, str], body: bytes, client: Connection) -> None:
        """Append an event and wait for its commit. Raises `OverloadedError` or `UnconfirmedError` after `ANSWER_S`."""
        loop, arrived = asyncio.get_running_loop(), client.received_at
        if loop.time() - arrived > self._answer_s * _SERVE_SHARE:
            raise _late()
        if len(body) > LARGE:
            pending = await loop.run_in_executor(self._quick, webhook.begin, self._context, headers, body)
        else:
            pending = webhook.begin(self._context, headers, body)
        stored = loop.create_future()
        self._waiting[stored] = pending, arrived
        pending.when_done(partial(self._on_stored, stored))
        if self._timer is None or self._timer.when() > arrived + self._answer_s * TURN_SHARE:
            self._withdraw_late()
        try:
            await stored
        finally:
            self._waiting.pop(stored, None)
        pending.wait()

    def _withdraw_late(self) -> None:
        """Withdraw the events that no commit includes in time. An event that a commit includes may still be stored.

        All events share one timer, because most events are stored long before the timeout.
        """
        if self._timer is not None:
            self._timer.cancel()
        loop, turn_s, self._timer = asyncio.get_running_loop(), self._answer_s * TURN_SHARE, None
        for stored, (pending, arrived) in list(self._waiting.items()):
            if loop.time() < arrived + turn_s:
                continue
            del self._waiting[stored]
            if pending.withdraw():
                _fail(stored, _late())
            else:
                unconfirmed = UnconfirmedError("The disk did not answer in time")
                loop.call_at(arrived + self._answer_s, _fail, stored, unconfirmed)
        if self._waiting:
            first = min(arrived for _, arrived in self._waiting.values())
            self._timer = loop.call_at(first + turn_s, self._withdraw_late)

    def _on_stored(self, stored: "asyncio.Future[None]") -> None:
        """Queue a finished append, from any thread. One wake-up of the loop (a system call) serves all in the queue."""
        self._stored.append(stored)
        if not self._woken:
            self._woken = True
            stored.get_loop().call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        # Clear the flag before emptying the queue, so that an append that finishes later wakes the loop again.
        self._woken = False
        while self._stored:
            stored = self._stored.popleft()
            if not stored.done():
                stored.set_result(None)

    async def _call_flask(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the WSGI application in threads, chunk by chunk. Refuse the request if no thread is free in time."""
        path = scope["path"].rstrip("/")  # may begin with the prefix of a proxy
        pool = self._scrapes if path.endswith(_SCRAPED) else self._quick if path.endswith(_QUICK_PATHS) else self._pages
        loop = asyncio.get_running_loop()
        client: Connection = scope["extensions"]["karrot"]
        body = bytearray()
        length = int(_headers(scope).get("content-length", "0")[-20:])  # it may begin with thousands of zeros
        if scope["method"] == "POST" and path.endswith(_WITH_BODY) and length <= _SMALL:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._context.body_timeout):
                    while len(body) < length and (message := await receive())["type"] == "http.request":
                        body += message["body"]
            body = body if len(body) == length else bytearray()  # an empty body is refused
        pieces = wsgi_pieces(self._wsgi, scope, _headers(scope), bytes(body))
        running = pool.submit(next, pieces)
        timer = loop.call_later(self._answer_s, running.cancel)
        started = False
        try:
            piece: list[Message] | None = await asyncio.wrap_future(running)
            while piece and not client.left:
                for message in piece:
                    started = True
                    await send(message)
                piece = await loop.run_in_executor(pool, next, pieces, None) if message["more_body"] else None
        except asyncio.CancelledError:
            if not running.cancelled():
                raise
            late = OverloadedError("The request waited too long for a thread")
            await _refuse(scope, webhook.refusal(self._context, late, "", counted=False))
        except Exception:  # noqa: BLE001 - the outermost handler of a request
            about = {"method": scope["method"], "path": scope["path"][:200]}
            _log.exception("the application failed", code="application_failed", **about)
            if started:
                client.raw.abort()  # so that the client sees that the answer is incomplete
            else:
                await _refuse(scope, webhook.refusal(self._context, RuntimeError(), "", counted=False))
        finally:
            timer.cancel()
            pieces.close()


def _headers(scope: Scope) -> dict[str, str]:
    """The headers by name in lower case. The values of headers with the same name are joined by commas."""
    pairs = [(name.decode("latin-1"), value.decode("latin-1").strip()) for name, value in scope["headers"]]
    headers = dict(pairs)
    if len(headers) < len(pairs):
        headers = {each: ",".join(value for name, value in pairs if name == each) for each in headers}
    return headers


async def _refuse(scope: Scope, answer: webhook.Answer) -> None:
    await scope["extensions"]["karrot"].answer(
        head_of(answer), b"" if scope["method"] == "HEAD" else answer.body, keep=False
    )


def _late() -> OverloadedError:
    return OverloadedError("The request waited too long for its turn")


def _fail(future: "asyncio.Future[None]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
