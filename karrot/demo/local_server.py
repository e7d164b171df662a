"""Serves the demo's own small HTTP services, such as the fake CloudWatch, on a free port of the loopback interface."""

import gzip
import json
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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


class CloudWatchReceiver:
    """Remembers the newest value of each metric. Several threads can use this class."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, str] = {}
        self._calls = 0

    def put(self, _path: str, body: bytes) -> Response:
        try:
            sent, newest = json.loads(body), dict[str, str]()
            for datum in sent["MetricData"]:
                dimensions = " ".join(f"{each['Name']}={each['Value']}" for each in datum.get("Dimensions", ()))
                name = f"{sent['Namespace']} {datum['MetricName']} {dimensions}"
                newest[name] = f"{datum['Value']:.12g} {datum.get('Unit', '')}"
        except (ValueError, LookupError, TypeError) as error:
            refusal = json.dumps({"__type": "SerializationException", "message": str(error)})
            return Response(refusal, 400, content_type=_JSON)
        with self._lock:
            self._calls += 1
            self._newest |= newest
        return Response(b"{}", content_type=_JSON)

    def page(self, _path: str, _body: bytes = b"") -> Response:
        with self._lock:
            lines = [f"{name}  {value}" for name, value in sorted(self._newest.items())]
            head = f"This local fake of Amazon CloudWatch has accepted {self._calls} calls. The newest values:\n"
        return Response("\n".join([head, *lines, ""]), content_type="text/plain; charset=utf-8")
