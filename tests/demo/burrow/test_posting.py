import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from structlog.testing import capture_logs

from karrot.clock import SystemClock
from karrot.demo.burrow import posting
from karrot.demo.burrow.fake_burrow import FakeBurrow, Post, simulate
from karrot.demo.burrow.posting import HttpSender, PostTally, run
from support.servers.background_server import serve_in_thread
from support.waiting import wait_for

START_MS = 1_763_741_000_000


@dataclass
class Sink:
    """A server that keeps the requests it gets and gives the answers it was set up with."""

    status: int = 202
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    clients: list[tuple[str, int]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def sink() -> Iterator[Sink]:
    kept = Sink()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kept.requests.append((self.command, self.path, dict(self.headers), body))
            kept.clients.append(self.client_address)
            self.send_response(kept.status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serve_in_thread(server) as port:
        kept.url = f"http://127.0.0.1:{port}/burrow?x=1"
        yield kept


def sender(url: str, **settings: Any) -> contextlib.closing[HttpSender]:
    return contextlib.closing(HttpSender(url, **settings))


# One request


def test_a_request_has_the_form_of_burrows_requests(sink: Sink) -> None:
    with sender(sink.url) as send:
        assert send(b'{"Event":{}}') == 202
    assert sink.requests == [
        (
            "POST",
            "/burrow?x=1",
            {
                "Host": sink.url.split("/")[2],
                "User-Agent": "Go-http-client/1.1",
                "Content-Length": "12",
                "Content-Type": "application/json",
                "Accept-Encoding": "gzip",
            },
            b'{"Event":{}}',
        )
    ]


def test_an_idempotency_key_is_sent(sink: Sink) -> None:
    with sender(sink.url, idempotency_key="1") as send:
        send(b"{}")
    assert sink.requests[0][2]["Idempotency-Key"] == "1"


def test_a_refusal_counts_as_an_answer(sink: Sink) -> None:
    sink.status = 503
    with sender(sink.url) as send:
        assert send(b"{}") == 503


def test_a_connection_is_reused_for_the_next_request(sink: Sink) -> None:
    with sender(sink.url) as send:
        send(b"1")
        send(b"2")
    assert len(set(sink.clients)) == 1


def test_at_most_two_idle_connections_are_kept(sink: Sink) -> None:
    with sender(sink.url) as send:
        busy = [send._connect() for _ in range(3)]
        for connection in busy:
            send._exchange(connection, b"{}")
        assert len(send._idle) == 2
        assert busy[2].sock is None


# Connections that break


@dataclass
class Rude:
    """A server that answers the first request of its first connection, and then runs a given function."""

    port: int
    answered: int = 0


@contextlib.contextmanager
def rude_server(after_the_first: Callable[[socket.socket], None]) -> Iterator[Rude]:
    listener = socket.create_server(("127.0.0.1", 0))
    rude = Rude(listener.getsockname()[1])

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    read_request(connection)
                    connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                    rude.answered += 1
                    after_the_first(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield rude
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def read_request(connection: socket.socket) -> None:
    """Read headers and a body of one byte, which may arrive separately."""
    received = b""
    while received[-5:-1] != b"\r\n\r\n":
        part = connection.recv(65_536)
        if not part:
            return
        received += part


hang_up_on_the_next_request = read_request


def test_a_kept_connection_that_breaks_loses_the_request_without_an_idempotency_key() -> None:
    with rude_server(hang_up_on_the_next_request) as rude, sender(f"http://127.0.0.1:{rude.port}") as send:
        send(b"1")
        with pytest.raises((ConnectionError, HTTPException)):
            send(b"2")
    assert rude.answered == 1


def test_a_kept_connection_that_breaks_is_replaced_with_an_idempotency_key() -> None:
    with (
        rude_server(hang_up_on_the_next_request) as rude,
        sender(f"http://127.0.0.1:{rude.port}", idempotency_key="1") as send,
    ):
        send(b"1")
        assert send(b"2") == 202
    assert rude.answered == 2


def test_a_connection_that_the_server_closed_is_not_reused() -> None:
    closed = threading.Event()

    def close_at_once(connection: socket.socket) -> None:
        connection.close()
        closed.set()

    with rude_server(close_at_once) as rude, sender(f"http://127.0.0.1:{rude.port}") as send:
        send(b"1")
        assert closed.wait(60)
        assert send(b"2") == 202
    assert rude.answered == 2


def test_a_server_that_does_not_answer_in_time_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with sender(f"http://127.0.0.1:{port}") as send, pytest.raises(TimeoutError):
            send(b"{}")


# The loop


class HandClock(SystemClock):
    """A wall clock that is set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS

    def wall_ms(self) -> int:
        return self.now_ms


def demo() -> FakeBurrow:
    return simulate(24, seed=7, speed=1, clusters=("prod-eu",), now_ms=START_MS)


@dataclass
class Loop:
    """`run` in a thread of its own."""

    clock: HandClock = field(default_factory=HandClock)
    stop: threading.Event = field(default_factory=threading.Event)
    failover: threading.Event = field(default_factory=threading.Event)
    tally: PostTally = field(default_factory=PostTally)

    @contextlib.contextmanager
    def running(self, send: Callable[[bytes], int], burrow: Any = None, **settings: Any) -> Iterator[None]:
        settings = {"clock": self.clock, "failover": self.failover, "tally": self.tally, "pause": 0.001} | settings
        thread = threading.Thread(target=run, args=(burrow or demo(), send, self.stop), kwargs=settings)
        thread.start()
        try:
            yield
        finally:
            self.stop.set()
            thread.join()

    def advance(self, to_seconds: int) -> None:
        """Advance the clock in steps of one second, because a real wall clock does not jump."""
        while self.clock.now_ms < START_MS + to_seconds * 1000:
            self.clock.now_ms += 1000
            expected = len(due_until(self.clock.now_ms))
            wait_for(lambda: self.total >= expected)  # noqa: B023 (waited for at once)

    @property
    def total(self) -> int:
        return self.tally.accepted + self.tally.refused + self.tally.failed + self.tally.skipped


def accept(_body: bytes) -> int:
    return 202


@cache
def first_minute() -> list[Post]:
    return demo().due(START_MS + 60_000)


def due_until(now_ms: int) -> list[bytes]:
    return [post.body for post in first_minute() if post.event.observed_at_ms <= now_ms]


def test_everything_due_is_posted_over_http(sink: Sink) -> None:
    loop = Loop()
    with sender(sink.url) as send, loop.running(send):
        loop.advance(12)
    expected = due_until(START_MS + 12_000)
    assert sorted(body for *_, body in sink.requests) == sorted(expected)
    assert (loop.tally.accepted, loop.tally.last_problem) == (len(expected), None)


def test_refusals_and_silence_are_counted_and_not_repeated() -> None:
    loop, sent = Loop(), list[bytes]()

    def send(body: bytes) -> int:
        sent.append(body)
        if len(sent) % 2:
            raise ConnectionRefusedError("nobody there")
        return 503

    with loop.running(send, threads=1):
        loop.advance(6)
    assert sorted(sent) == sorted(due_until(START_MS + 6_000))
    assert (loop.tally.accepted, loop.tally.refused, loop.tally.failed) == (0, len(sent) // 2, -(-len(sent) // 2))
    assert loop.tally.last_problem in {"HTTP 503", "ConnectionRefusedError: nobody there"}


def test_a_failover_posts_all_groups_at_once() -> None:
    loop = Loop()
    with loop.running(accept):
        loop.advance(6)
        before = loop.tally.accepted
        loop.failover.set()
        wait_for(lambda: loop.tally.accepted == before + 25)
    assert not loop.failover.is_set()


def test_posts_that_were_due_while_the_machine_slept_are_skipped_and_logged_once() -> None:
    loop = Loop()
    with capture_logs() as told, loop.running(accept):
        loop.clock.now_ms += 60_000
        wait_for(lambda: loop.total == len(due_until(START_MS + 60_000)))
    assert loop.tally.skipped > 200
    assert [each["event"] for each in told] == ["the fake Burrow skips posts that are late"]
    assert 0 < loop.tally.accepted < 75


def test_concurrent_posts_are_limited_to_the_number_of_threads() -> None:
    loop, gate, under_way = Loop(), threading.Event(), list[bytes]()

    def send(body: bytes) -> int:
        under_way.append(body)
        gate.wait(60)
        return 202

    with loop.running(send, threads=3):
        loop.clock.now_ms += 6_000
        wait_for(lambda: len(under_way) == 3)
        loop.stop.set()
        gate.set()
    assert len(under_way) <= 4


def test_a_stop_interrupts_a_long_catch_up() -> None:
    loop, burrow = Loop(), demo()
    asked: list[int] = []

    class Slow:
        def due(self, now_ms: int) -> list[Post]:
            asked.append(now_ms)
            loop.stop.set()
            return burrow.due(now_ms)

    with loop.running(accept, burrow=Slow()):
        loop.clock.now_ms += 3_600_000
        loop.stop.wait(60)
    assert (len(asked), loop.total) == (1, 0)
    assert asked[0] <= START_MS + 1000
