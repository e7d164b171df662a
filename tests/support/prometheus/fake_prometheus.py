"""Serves Prometheus' HTTP API with the targets and query results that a test gives it."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.servers.background_server import serve_in_thread


@contextmanager
def fake_prometheus(
    *,
    targets: list[dict[str, Any]],
    results: Mapping[str, float] | None = None,
    closed: frozenset[str] = frozenset(),
) -> Iterator[str]:
    """Yield the URL. ``results`` has the values of queries; other queries have none. ``closed`` paths answer 403."""
    answers: dict[str, Any] = {
        "/api/v1/targets": {"activeTargets": targets, "droppedTargets": []},
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            if asked.path in closed:
                self._send(403, {"status": "error", "error": "not for you"})
                return
            data = answers.get(asked.path)
            if asked.path == "/api/v1/query":
                data = self._query(parse_qs(asked.query)["query"][0])
            self._send(404 if data is None else 200, {"status": "success", "data": data})

        def _query(self, expression: str) -> dict[str, Any]:
            if expression == "time()":
                return {"resultType": "scalar", "result": [time.time(), str(time.time())]}
            value = (results or {}).get(expression)
            found = (
                []
                if value is None
                else [{"metric": {"job": "lag", "instance": "a"}, "value": [time.time(), str(value)]}]
            )
            return {"resultType": "vector", "result": found}

        def _send(self, status: int, body: Any) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serve_in_thread(server) as port:
        yield f"http://127.0.0.1:{port}"
