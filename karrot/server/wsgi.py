"""Runs a WSGI application (PEP 3333), which is Flask, for an ASGI request that is not an event."""

import io
import sys
from collections.abc import Callable, Generator, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

Scope = dict[str, Any]
Message = dict[str, Any]
WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_PIECE = 64 << 10


def wsgi_pieces(
    application: WsgiApplication, scope: Scope, headers: dict[str, str], body: bytes
) -> Generator[list[Message], None, None]:
    """Run a WSGI application for a request. Yield the answer as messages, a long answer in chunks."""
    start: Message = {"type": "http.response.start"}
    unsent = bytearray()

    def start_response(status: str, headers: Iterable[tuple[str, str]], _exc_info: Any = None) -> Any:
        start["status"] = int(status[:3])
        start["headers"] = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        return unsent.extend

    answer = application(_environ(scope, headers, body), start_response)
    messages = [start]
    try:
        for data in answer:
            unsent += data
            if len(unsent) >= _PIECE and scope["http_version"] != "1.0":  # HTTP/1.0 has no chunks
                yield [*messages, {"type": "http.response.body", "body": bytes(unsent), "more_body": True}]
                messages = []
                unsent.clear()
        if messages:
            names = [name for name, _ in start["headers"]]
            if b"content-length" not in names and start["status"] not in (204, 304):
                start["headers"].append((b"content-length", b"%d" % len(unsent)))
            if "content-length" in headers or "transfer-encoding" in headers:
                start["headers"].append((b"connection", b"close"))  # the body of this request is not read
        yield [*messages, {"type": "http.response.body", "body": bytes(unsent), "more_body": False}]
    finally:
        getattr(answer, "close", lambda: None)()


def _environ(scope: Scope, headers: dict[str, str], body: bytes) -> dict[str, Any]:
    named = {
        f"HTTP_{name.upper().replace('-', '_')}": value
        for name, value in headers.items()
        # A name with an underscore could imitate another header. The body is not read, and Upgrade is ignored.
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
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
