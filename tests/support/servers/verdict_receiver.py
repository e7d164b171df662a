"""A receiver of verdicts that answers as a test says."""

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from karrot.burrow.payload import parse_stored
from karrot.event import Source


class VerdictReceiver(ThreadingHTTPServer):
    """Answers each POST with the status that ``answer`` gives for the group, and keeps the ``accepted`` bodies."""

    def __init__(self, port: int, answer: Callable[[str], int], accepted: list[bytes]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = answer(group_of(body))
                if status == 202:
                    accepted.append(body)
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        super().__init__(("127.0.0.1", port), Handler)


def group_of(body: bytes) -> str:
    return parse_stored(body, observed_at_ms=0, source=Source.KAFKA).consumer
