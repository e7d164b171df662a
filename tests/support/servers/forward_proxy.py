"""A real forward proxy for HTTP and, with CONNECT, for HTTPS. It records what it was asked to reach."""

import select
import socket
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class ForwardProxy(ThreadingHTTPServer):
    """Forwards every request to 127.0.0.1, whatever the host's name. ``seen`` has the first line of each request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[str] = []
        self.authorizations: list[str | None] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: ForwardProxy

    def forward(self) -> None:
        self._record()
        asked = urlsplit(self.path)
        connection = HTTPConnection("127.0.0.1", asked.port or 80, timeout=10)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if not name.lower().startswith("proxy-")}
        connection.request(self.command, f"{asked.path}?{asked.query}".rstrip("?"), body, headers)
        answer = connection.getresponse()
        told = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("server", "date", "content-length", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)
        connection.close()

    do_GET = do_POST = forward  # noqa: N815 (the names http.server looks for)

    def do_CONNECT(self) -> None:
        self._record()
        with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2])), timeout=10) as far:
            self.send_response(200)
            self.end_headers()
            ends = {self.connection: far, far: self.connection}
            while True:
                readable, _, _ = select.select(ends, (), (), 10)
                for end in readable or ends:
                    data = end.recv(65536) if readable else b""
                    if not data:
                        self.close_connection = True
                        return
                    ends[end].sendall(data)

    def _record(self) -> None:
        self.server.seen.append(f"{self.command} {self.path}")
        self.server.authorizations.append(self.headers.get("Proxy-Authorization"))

    def log_message(self, *_arguments: object) -> None:
        """Keep requests off standard error."""
