import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from structlog.testing import capture_logs
from werkzeug import Response

from karrot.burrow.payload import to_wire
from karrot.clock import SystemClock
from karrot.demo import demo
from karrot.demo.demo import post_verdicts
from karrot.demo.local_server import serve_locally
from karrot.demo.simulated_burrow import SimulatedBurrow
from support.waiting import wait_for

START_MS = 1_763_741_000_000


class HandClock(SystemClock):
    """A wall clock that is set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS

    def wall_ms(self) -> int:
        return self.now_ms


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_PAUSE_S", 0.001)


@dataclass
class Loop:
    """`post_verdicts` in a thread, with a receiver."""

    answer: Callable[[bytes], int] = lambda _body: 202
    bodies: list[bytes] = field(default_factory=list)
    clock: HandClock = field(default_factory=HandClock)
    stop: threading.Event = field(default_factory=threading.Event)

    def receive(self, path: str, body: bytes) -> Response:
        assert path == "/burrow"
        self.bodies.append(body)
        return Response(status=self.answer(body))

    @contextlib.contextmanager
    def running(self, url: str | None = None) -> Iterator[None]:
        with serve_locally(self.receive, self.receive) as own:
            arguments = (burrow(), url or f"{own}/burrow", self.stop)
            more: Any = {"clock": self.clock}
            thread = threading.Thread(target=post_verdicts, args=arguments, kwargs=more)
            thread.start()
            try:
                yield
            finally:
                self.stop.set()
                thread.join()


def burrow() -> SimulatedBurrow:
    return SimulatedBurrow(24, seed=7, speed=1, start_ms=START_MS)


def test_everything_due_is_posted_over_http() -> None:
    loop = Loop()
    with loop.running():
        loop.clock.now_ms += 6_000
        wait_for(lambda: len(loop.bodies) == 26)
    assert sorted(loop.bodies) == sorted(to_wire(event) for event in burrow().due(START_MS + 6_000))


def test_a_refused_verdict_is_logged_once_and_not_repeated() -> None:
    loop = Loop(answer=lambda _: 503)
    with capture_logs() as told, loop.running():
        loop.clock.now_ms += 6_000
        wait_for(lambda: len(loop.bodies) == 26)
    assert len(set(loop.bodies)) == 26
    assert [(each["code"], each["reason"]) for each in told] == [("demo_refused", "HTTP 503")]


def test_a_problem_between_verdicts_that_are_accepted_is_logged_once() -> None:
    statuses = count()
    loop = Loop(answer=lambda _: (202, 503, 429)[next(statuses) % 3])
    with capture_logs() as told, loop.running():
        loop.clock.now_ms += 6_000
        wait_for(lambda: len(loop.bodies) == 26)
    assert sorted(each["reason"] for each in told) == ["HTTP 429", "HTTP 503"]


def test_a_receiver_that_is_away_is_logged_and_the_posts_go_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    loop = Loop()
    with capture_logs() as told, loop.running(f"http://127.0.0.1:{port}/burrow"):
        loop.clock.now_ms += 6_000
        wait_for(lambda: len(told) > 0)
    assert told[0]["code"] == "demo_refused"
    assert "Connection refused" in told[0]["reason"]


def test_no_more_posts_wait_for_answers_than_there_are_threads_and_a_stop_drops_the_others() -> None:
    gate = threading.Event()

    def wait(_body: bytes) -> int:
        gate.wait(60)
        return 202

    loop = Loop(answer=wait)
    with loop.running():
        loop.clock.now_ms += 6_000
        wait_for(lambda: len(loop.bodies) == 16)
        loop.stop.set()
        gate.set()
    assert len(loop.bodies) == 16
