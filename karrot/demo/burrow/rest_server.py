"""Serves the fake Burrow's REST API over HTTP, and behaves as Go's ``net/http`` does."""

import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from karrot.demo.burrow.rest_api import RestAnswer, RestApi

_SNIFFED = 2048
"""Go tells the length of a body that it can hold back as a whole, and sends a longer one in chunks."""


class BurrowServer:
    """Listens on loopback from the start; serves inside ``with``. Port 0 takes a free one."""

    def __init__(self, api: RestApi, port: int = 0) -> None:
        self._server = _Server(api, port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="fake-burrow-rest")
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def asked(self) -> list[str]:
        """What was asked for, in order: ``GET /v3/kafka``."""
        return list(self._server.asked)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # kept connections of a client that outlives the test
    request_queue_size = 128

    def __init__(self, api: RestApi, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.api = api
        self.asked: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves in one piece
    disable_nagle_algorithm = True
    server: _Server

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # the client has gone
            self.close_connection = True

    def do_GET(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, *_: Any) -> None:
        """Questions are recorded, not logged."""

    def _serve(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        answer = self.server.api.answer(self.command, self.path)
        if answer is None:
            self.close_connection = True  # as near as a socket that listens comes to none
        else:
            self._send(answer)

    def _send(self, answer: RestAnswer) -> None:
        self.send_response_only(answer.status)
        self.send_header("Content-Type", answer.content_type)
        if answer.location:
            self.send_header("Location", answer.location)
        if answer.status == 404 and answer.content_type != "application/json":  # noqa: PLR2004 (Go's http.Error)
            self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Date", formatdate(usegmt=True))
        body = answer.body
        if len(body) > _SNIFFED:
            self.send_header("Transfer-Encoding", "chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
