"""An HTTP server that gives every request the same answer and records the requests."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class RecordingServer(ThreadingHTTPServer):
    """A server that answers every request with one status and body, and keeps the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 202
        self.body = b'{"status":"told"}\n'
        self.location = "/elsewhere"
        self.seen: list[Request] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: RecordingServer

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append(Request(self.command, self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST = do_DELETE = answer  # noqa: N815 (the names http.server looks for)

    def log_message(self, *_arguments: object) -> None:
        """Keep requests off standard error."""
