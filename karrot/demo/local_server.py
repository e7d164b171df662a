"""Serves the demo's own small HTTP services, such as the fake CloudWatch, on a free port of the loopback interface."""

import gzip
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import DecodeError, Struct, json
from werkzeug import Request, Response
from werkzeug.serving import WSGIRequestHandler, make_server

Answering = Callable[[str, bytes], Response]
"""Answers a request with a path and a body (``b""`` for a GET). Several threads call this function at the same time."""


@contextmanager
def serve_locally(get: Answering, post: Answering | None = None) -> Iterator[str]:
    """Serve inside the ``with`` block, and yield the URL."""

    @Request.application
    def answer(request: Request) -> Response:
        body = request.get_data()
        try:
            body = gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            return Response(f"{error}\n", 400)
        return (post if post and request.method == "POST" else get)(request.path, body)

    server = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=_SilentHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _SilentHandler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # send the whole answer in one write

    def log(self, *_: Any) -> None:
        """Log nothing."""


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

    def put(self, _path: str, body: bytes) -> Response:
        try:
            sent = json.decode(body, type=_PutMetricData)
        except DecodeError as error:
            refusal = {"__type": "SerializationException", "message": str(error)}
            return Response(json.encode(refusal), 400, content_type=_JSON)
        with self._lock:
            self._calls += 1
            for datum in sent.metric_data:
                dimensions = " ".join(f"{each.name}={each.value}" for each in datum.dimensions)
                self._newest[f"{sent.namespace} {datum.metric_name} {dimensions}"] = datum
        return Response(b"{}", content_type=_JSON)

    def page(self, _path: str, _body: bytes = b"") -> Response:
        with self._lock:
            lines = [f"{name}  {each.value:.12g} {each.unit or ''}" for name, each in sorted(self._newest.items())]
            head = f"This local fake of Amazon CloudWatch has accepted {self._calls} calls. The newest values:\n"
        return Response("\n".join([head, *lines, ""]), content_type="text/plain; charset=utf-8")
