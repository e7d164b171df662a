"""Serves a strict fake of Amazon CloudWatch over HTTP on loopback, with a thread for each connection.

It accepts PutMetricData in AWS JSON 1.0, plain or gzipped, with every documented limit, the real error codes and, where
they are known, the real messages. A request is stored completely or not at all.
"""

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from support.reporters.cloudwatch_service.request_handler import AwsAnswer, Handler, HandlerRequest


class CallerConnection(BaseHTTPRequestHandler):
    """One kept-alive connection from a client."""

    protocol_version = "HTTP/1.1"
    server_version = "FakeCloudWatch"
    sys_version = ""
    wbufsize = -1  # an answer leaves in one piece
    disable_nagle_algorithm = True
    server: "FakeCloudWatch"

    def handle_one_request(self) -> None:
        """Handle one request. The client may close the connection at any time."""
        try:
            super().handle_one_request()
        except ConnectionError:  # the client has closed the connection
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Log nothing, because the handler records each call."""

    def do_GET(self) -> None:
        """Read the request and send the handler's answer."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdigit():
            self.send_error(411)
            return
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.send_answer(self.server.handler.answer(HandlerRequest(self.command, self.path, headers, body)))

    do_POST = do_GET  # noqa: N815 (the name that http.server calls)

    def send_answer(self, answer: AwsAnswer) -> None:
        """Send the head and the body."""
        self.send_head(answer)
        self.wfile.write(answer.body)

    def send_head(self, answer: AwsAnswer) -> None:
        """Send the status and the headers."""
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()


class FakeCloudWatch(ThreadingHTTPServer):
    """An HTTP server for CloudWatch's PutMetricData on 127.0.0.1. It enforces every documented limit.

    ``port`` 0 takes a free port. The server answers requests inside a ``with`` block, or from `start` until `close`. To
    inject faults, tests use a subclass of this server, and a subclass of `CallerConnection` as ``connection``. Raises
    OSError if the port is in use.
    """

    daemon_threads = False  # `close` waits for them, so no thread outlives the server
    request_queue_size = 128

    def __init__(
        self, handler: Handler, *, port: int = 0, connection: type[CallerConnection] = CallerConnection
    ) -> None:
        super().__init__(("127.0.0.1", port), connection)
        self.handler = handler
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, name="fake-cloudwatch")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL for ``AWS_ENDPOINT_URL_CLOUDWATCH``. In a browser it shows a page with the metrics."""
        return f"http://127.0.0.1:{self.server_port}"

    def start(self) -> None:
        """Start to serve, in threads."""
        self._thread.start()

    def close(self) -> None:
        """Close every connection. Returns when every thread has ended."""
        self.closing.set()
        if self._thread.is_alive():
            socket.create_connection(("127.0.0.1", self.server_port)).close()  # wakes the accepting thread
            self._thread.join()
        with self._lock:
            for connection in self._open:
                with suppress(OSError):  # the client has closed it already
                    connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def _accept(self) -> None:
        while not self.closing.is_set():
            self.handle_request()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 (socketserver passes both)
        """Refuse new connections after `close` has begun."""
        return not self.closing.is_set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Note the open connection, then give it to a thread."""
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)
