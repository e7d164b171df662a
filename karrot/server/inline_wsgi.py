"""Serves an event in the event loop, without a thread, and holds its answer until the log's writer has it on disk."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gunicorn.http import wsgi

from karrot.eventlog.base import TURN_SHARE, LogUnavailableError, OverloadedError, PendingAppend, UnconfirmedError
from karrot.server.connection import LOG_UNAVAILABLE, OVERLOADED, UNCONFIRMED, Connection, Refusal
from karrot.server.request_head import RequestHead

DEFERS = "karrot.defers"
"""In the WSGI environment of a server that sends the answer only once the event under `PENDING` is stored, and 503 if
it cannot be: so that no thread waits for the disk."""

PENDING = "karrot.pending"
"""Where such a server finds the `PendingAppend`."""


class WsgiAnswer(NamedTuple):
    """The bytes of an answer, whether the connection can be used again, and the append that it depends on, if any."""

    data: bytes
    reusable: bool
    pending: PendingAppend | None = None


class HeldAnswer:
    """Stands in for the socket: what gunicorn sends is kept, because it may not be true yet."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.data = bytearray()

    def sendall(self, data: bytes) -> None:
        """Keep what would be sent."""
        self.data += data

    send = sendall

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def serve(conn: Connection, application: Callable[..., Any], kept: HeldAnswer, *, alive: bool) -> WsgiAnswer:
    """Run the application on a request whose body is here, or that is refused without it.

    Raises what gunicorn's parser raises for a request that is none.
    """
    request = next(conn.parser)
    response, environ = wsgi.create(request, kept, conn.client, conn.server, conn.cfg)
    environ["wsgi.multithread"] = True
    environ[DEFERS] = True
    body = application(environ, response.start_response)
    pending: PendingAppend | None = environ.get(PENDING)
    # Only an accepted event was certainly read to its end; whoever is refused is told to come on a new connection.
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
    """Sends an answer when its event is stored, or says instead that it is not, or that nobody knows, in time.

    ``stored(conn, answer)`` and ``refused(conn, head, refusal, detail)`` are called in the event loop, once per event;
    ``wake`` from any thread when `settle` has something to do. An event has ``patience_s``, `TURN_SHARE` of it for its
    turn: whoever waits longer than that for a commit to take the event withdraws it.
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
        """Keep an answer until its event is stored; the request has been here ``since``, by the monotonic clock."""
        turn_until = since + self._patience_s * TURN_SHARE
        self._events[conn] = _Event(head, answer, pending, turn_until, since + self._patience_s)
        pending.when_done(partial(self._on_done, conn))

    def settle(self) -> None:
        """Answer those whose outcome is known."""
        while self._done:
            conn = self._done.popleft()
            event = self._events.pop(conn, None)
            if event is None:  # it was given up
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
        """Give up those that have had their time."""
        for conn, event in list(self._events.items()):
            if event.turn_until <= now and event.pending.withdraw():
                self._give_up(conn, event, OVERLOADED)
            elif event.until <= now:
                self._give_up(conn, event, UNCONFIRMED)

    def _on_done(self, conn: Connection) -> None:
        """The writer is done with an event: in its thread, or in this one if it was quicker."""
        self._done.append(conn)
        self._wake()

    def _give_up(self, conn: Connection, event: _Event, refusal: Refusal) -> None:
        del self._events[conn]
        self._refused(conn, event.head, refusal, refusal.detail)
