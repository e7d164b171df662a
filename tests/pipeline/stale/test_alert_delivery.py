from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from karrot.pipeline.stale.stale_judge import Undelivered, to_webhook
from support.servers.background_server import serve_in_thread

Posted = list[tuple[str, str | None, str]]


@contextmanager
def _webhook(*statuses: int) -> Iterator[tuple[str, Posted]]:
    """Serve a webhook; yield its URL and the posts to it, each with path, type and body."""
    answers, posted = iter(statuses), Posted()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            posted.append((self.path, self.headers["Content-Type"], body))
            self.send_response(next(answers))
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield f"http://127.0.0.1:{port}", posted


def test_a_line_is_posted_and_counts_as_undelivered_without_a_success_answer() -> None:
    with _webhook(204, 500, 302) as (url, posted):
        deliver = to_webhook(f"{url}/hooks/s3cret")
        deliver('{"group":"größe"}')
        for said in ("HTTP 500", "HTTP 302"):
            with pytest.raises(Undelivered, match=f"^{said}$"):
                deliver("{}")
    with pytest.raises(Undelivered) as raised:
        deliver("{}")
    assert "s3cret" not in str(raised.value)
    sent = ('{"group":"größe"}', "{}", "{}")
    assert posted == [("/hooks/s3cret", "application/json", body) for body in sent]


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("", id="an empty URL"),
        pytest.param("hooks.example/x", id="no scheme"),
        pytest.param("ftp://hooks.example/x", id="another scheme"),
        pytest.param("http:///x", id="no host"),
    ],
)
def test_an_invalid_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"^--to webhook= must be an http:// or https:// address$"):
        to_webhook(url)
