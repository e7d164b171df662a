"""Serves one request in the event loop, without a thread: for events, which wait only for the disk."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gunicorn.http import wsgi

from karrot.eventlog.base import PendingAppend
from karrot.server.connection import Connection

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
