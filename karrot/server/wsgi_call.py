"""Calls the WSGI application for one request, in a thread, with the standard library's handler."""

import io
import logging
import sys
from collections.abc import Callable
from typing import Any
from wsgiref.handlers import BaseHandler
from wsgiref.headers import Headers

from karrot.server.connection import Connection
from karrot.server.request_head import RequestHead

Application = Callable[[dict[str, Any], Callable[..., Any]], Any]

_PIECE = 64 << 10
_log = logging.getLogger(__name__)


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
            "RAW_URI": head.target,
            "SERVER_PROTOCOL": f"HTTP/{head.version}",
            "SERVER_NAME": str(conn.server[0]),
            "SERVER_PORT": str(conn.server[1]),
            "REMOTE_ADDR": str(conn.client[0]),
            "REMOTE_PORT": str(conn.client[1]),
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
            _log.error("the application failed: %s %s", self._head.method, self._head.path[:200], exc_info=exc_info)
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
