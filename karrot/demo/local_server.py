"""Serves the demo's own small HTTP services on a free port of loopback. One is in place of Amazon CloudWatch."""

import gzip
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from msgspec import DecodeError, Struct, json


class LocalAnswer(NamedTuple):
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes


Answering = Callable[[str, bytes], LocalAnswer]
"""Answers a path and the body of a POST, which is empty for a GET. Several threads call it at the same time."""


@contextmanager
def serve_locally(get: Answering, post: Answering | None = None) -> Iterator[str]:
    """Serve inside the ``with`` block. The value is the URL."""
    methods = {"do_GET": _method(get)} | ({"do_POST": _method(post)} if post else {})
    with ThreadingHTTPServer(("127.0.0.1", 0), type("_Handler", (_Handler,), methods)) as server:
        server.daemon_threads = True  # a client may keep its connection open
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves in one piece
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # the client has gone
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _method(answering: Answering) -> Callable[[_Handler], None]:
    def answer(handler: _Handler) -> None:
        try:
            body = _body(handler)
        except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            handler.close_connection = True  # where this body ends is not known
            status, content_type, answered = LocalAnswer(400, "text/plain", f"{error}\n".encode())
        else:
            status, content_type, answered = answering(handler.path.partition("?")[0], body)
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(answered)))
        handler.end_headers()
        handler.wfile.write(answered)

    return answer


def _body(handler: _Handler) -> bytes:
    size = int(handler.headers.get("Content-Length") or 0)
    if size < 0:
        raise ValueError("Content-Length is below 0")
    body = handler.rfile.read(size)
    return gzip.decompress(body) if handler.headers.get("Content-Encoding") == "gzip" else body


_JSON = "application/x-amz-json-1.0"


class _Dimension(Struct, rename="pascal"):
    name: str
    value: str


class _Datum(Struct, rename="pascal"):
    metric_name: str
    value: float
    dimensions: Sequence[_Dimension] = ()
    unit: str | None = None


class _PutMetricData(Struct, rename="pascal"):
    namespace: str
    metric_data: list[_Datum]


class CloudWatchReceiver:
    """Remembers the newest value of each metric. Several threads can use this class."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, _Datum] = {}
        self._calls = 0

    def put(self, _path: str, body: bytes) -> LocalAnswer:
        """Accept a call of PutMetricData."""
        try:
            sent = json.decode(body, type=_PutMetricData)
        except DecodeError as error:
            return LocalAnswer(400, _JSON, json.encode({"__type": "SerializationException", "message": str(error)}))
        with self._lock:
            self._calls += 1
            for datum in sent.metric_data:
                dimensions = " ".join(f"{each.name}={each.value}" for each in datum.dimensions)
                self._newest[f"{sent.namespace} {datum.metric_name} {dimensions}"] = datum
        return LocalAnswer(200, _JSON, b"{}")

    def page(self, _path: str, _body: bytes = b"") -> LocalAnswer:
        """The page with the newest values."""
        with self._lock:
            lines = [f"{name}  {each.value:.12g} {each.unit or ''}" for name, each in sorted(self._newest.items())]
            head = f"This local fake of Amazon CloudWatch has accepted {self._calls} calls. The newest values:\n"
        return LocalAnswer(200, "text/plain; charset=utf-8", "\n".join([head, *lines, ""]).encode())
