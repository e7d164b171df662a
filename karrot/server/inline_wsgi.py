"""Serves an event in the event loop, without a thread, and keeps the answer until the event is on disk."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gunicorn.http import wsgi

from karrot.eventlog.base import TURN_SHARE, LogUnavailableError, OverloadedError, PendingAppend, UnconfirmedError
from karrot.server.connection import LOG_UNAVAILABLE, OVERLOADED, UNCONFIRMED, Connection, Refusal
from karrot.server.request_completeness import RequestHead

DEFERS = "karrot.defers"
"""A key in the WSGI environment. It says that this server answers only after the event under `PENDING` is stored, or
with 503 if the event cannot be stored. So no thread has to wait for the disk."""

PENDING = "karrot.pending"
"""A key in the WSGI environment. The application puts the `PendingAppend` there."""


class WsgiAnswer(NamedTuple):
    """The bytes of an answer, whether the connection can be used again, and the event's append, if there is one."""

    data: bytes
    reusable: bool
    pending: PendingAppend | None = None


class HeldAnswer:
    """Stands in for the socket and keeps the data that gunicorn sends, because the event may not be stored yet."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.data = bytearray()

    def sendall(self, data: bytes) -> None:
        """Keep the data instead of sending it."""
        self.data += data

    send = sendall

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def serve(conn: Connection, application: Callable[..., Any], kept: HeldAnswer, *, alive: bool) -> WsgiAnswer:
    """Run the application on a complete request, or on a request that is refused without its body.

    If the bytes are not a valid request, raises what gunicorn's parser raises.
    """
    request = next(conn.parser)
    response, environ = wsgi.create(request, kept, conn.client, conn.server, conn.cfg)
    environ["wsgi.multithread"] = True
    environ[DEFERS] = True
    body = application(environ, response.start_response)
    pending: PendingAppend | None = environ.get(PENDING)
    # Only the body of an accepted event was certainly read to its end. After any other answer, close the connection.
    if pending is None or not alive:
        response.force_close()
    try:
        for piece in body:
            response.write(piece)
        response.close()
    finally:
        if hasattr(body, "close"):
            body.close()
    return WsgiAnswer(bytes(kept.data), not response.should_close(), pending)


class _Event(NamedTuple):
    head: RequestHead
    answer: WsgiAnswer
    pending: PendingAppend
    turn_until: float
    until: float


class PendingAnswers:
    """Sends the answer when the event is stored. Sends a refusal if storing failed, or took longer than allowed.

    The event loop calls ``stored(conn, answer)`` or ``refused(conn, head, refusal, detail)`` once per event. Any thread
    calls ``wake`` when `settle` has something to do. An event may take ``patience_s`` in all. If no commit has taken
    the event after the share `TURN_SHARE` of this time, the event is withdrawn.
    """

    def __init__(
        self,
        stored: Callable[[Connection, WsgiAnswer], object],
        refused: Callable[[Connection, RequestHead, Refusal, str], object],
        wake: Callable[[], object],
        *,
        patience_s: float,
    ) -> None:
        self._stored = stored
        self._refused = refused
        self._wake = wake
        self._patience_s = patience_s
        self._events: dict[Connection, _Event] = {}
        self._done: deque[Connection] = deque()

    def __bool__(self) -> bool:
        return bool(self._events)

    def hold(
        self, conn: Connection, head: RequestHead, answer: WsgiAnswer, pending: PendingAppend, *, since: float
    ) -> None:
        """Keep an answer until its event is stored. The request arrived at ``since``, by the monotonic clock."""
        turn_until = since + self._patience_s * TURN_SHARE
        self._events[conn] = _Event(head, answer, pending, turn_until, since + self._patience_s)
        pending.when_done(partial(self._on_done, conn))

    def settle(self) -> None:
        """Send the answers of all events whose outcome is known."""
        while self._done:
            conn = self._done.popleft()
            event = self._events.pop(conn, None)
            if event is None:  # the event was refused because its time was over
                continue
            try:
                event.pending.wait()
            except UnconfirmedError as error:
                self._refused(conn, event.head, UNCONFIRMED, str(error))
            except LogUnavailableError as error:
                self._refused(conn, event.head, LOG_UNAVAILABLE, str(error))
            except OverloadedError as error:
                self._refused(conn, event.head, OVERLOADED, str(error))
            else:
                self._stored(conn, event.answer)

    def expire(self, now: float) -> None:
        """Refuse the events whose time is over."""
        for conn, event in list(self._events.items()):
            if event.turn_until <= now and event.pending.withdraw():
                self._give_up(conn, event, OVERLOADED)
            elif event.until <= now:
                self._give_up(conn, event, UNCONFIRMED)

    def _on_done(self, conn: Connection) -> None:
        """Queue a finished event. The caller is the writer's thread, or this thread if the writer is already done."""
        self._done.append(conn)
        self._wake()

    def _give_up(self, conn: Connection, event: _Event, refusal: Refusal) -> None:
        del self._events[conn]
        self._refused(conn, event.head, refusal, refusal.detail)
