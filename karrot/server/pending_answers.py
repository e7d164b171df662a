"""Holds the answers to events until the log's writer has them on disk."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from karrot.eventlog.base import TURN_SHARE, LogUnavailableError, OverloadedError, PendingAppend, UnconfirmedError
from karrot.server.connection import LOG_UNAVAILABLE, OVERLOADED, UNCONFIRMED, Connection, Refusal
from karrot.server.inline_wsgi import WsgiAnswer
from karrot.server.request_head import RequestHead


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
            if (event := self._events.pop(conn, None)) is not None:  # else it was given up
                self._settle(conn, event)

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

    def _settle(self, conn: Connection, event: _Event) -> None:
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

    def _give_up(self, conn: Connection, event: _Event, refusal: Refusal) -> None:
        del self._events[conn]
        self._refused(conn, event.head, refusal, refusal.detail)
