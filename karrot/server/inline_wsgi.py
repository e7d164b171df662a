"""Serves an event in the event loop, without a thread, and holds back its answer until the event is on disk."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gunicorn.http import wsgi

from karrot.eventlog.base import TURN_SHARE, LogUnavailableError, OverloadedError, PendingAppend, UnconfirmedError
from karrot.server.connection import LOG_UNAVAILABLE, OVERLOADED, UNCONFIRMED, Connection, Refusal
from karrot.server.request_completeness import RequestHead

DEFERS = "karrot.defers"
"""The key in the WSGI environment that says: this server sends the answer only after the event under `PENDING` is
stored, and 503 if the event cannot be stored. So no thread has to wait for the disk."""

PENDING = "karrot.pending"
"""The key in the WSGI environment under which the application puts the `PendingAppend`."""


class WsgiAnswer(NamedTuple):
    """An answer: its bytes, whether the connection can be used again, and the append that it depends on, if any."""

    data: bytes
    reusable: bool
    pending: PendingAppend | None = None


class HeldAnswer:
    """Replaces the socket: it keeps what gunicorn sends, because the event may not be stored yet."""

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
    """Run the application on a request that is complete, or that is refused without its body.

    Raises what gunicorn's parser raises for bytes that are not a valid request.
    """
    request = next(conn.parser)
    response, environ = wsgi.create(request, kept, conn.client, conn.server, conn.cfg)
    environ["wsgi.multithread"] = True
    environ[DEFERS] = True
    body = application(environ, response.start_response)
    pending: PendingAppend | None = environ.get(PENDING)
    # Only the body of an accepted event was certainly read to its end. After any other answer the connection closes.
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
    """Sends the answer when its event is stored, or a refusal if storing failed or its outcome is not known in time.

    ``stored(conn, answer)`` and ``refused(conn, head, refusal, detail)`` are called in the event loop, once per event.
    ``wake`` is called from any thread when `settle` has something to do. An event has ``patience_s``, and the share
    `TURN_SHARE` of that for its turn: an event that no commit has taken by then is withdrawn.
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
            if event is None:  # its time was over and it was refused
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
        """Queue a finished event. The writer's thread calls this, or this thread if the writer is done already."""
        self._done.append(conn)
        self._wake()

    def _give_up(self, conn: Connection, event: _Event, refusal: Refusal) -> None:
        del self._events[conn]
        self._refused(conn, event.head, refusal, refusal.detail)
