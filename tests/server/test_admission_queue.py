from typing import Any

from karrot.server.admission_queue import AdmissionQueue
from karrot.server.request_completeness import RequestHead

HEAD = RequestHead("POST", "/burrow", 0, "", waits_for_continue=False)
PATIENCE_S = 1.0


class Loop:
    """A fake loop with its own time that records served and refused connections; a connection is a number."""

    def __init__(self, *, takes_s: float = 0.0) -> None:
        self.now = 100.0
        self.takes_s = takes_s
        self.served: list[Any] = []
        self.refused: list[Any] = []
        self.turns = AdmissionQueue(self.serve, self.refuse, patience_s=PATIENCE_S, clock=lambda: self.now)

    def serve(self, conn: Any, _head: RequestHead, _since: float) -> None:
        self.served.append(conn)
        self.now += self.takes_s

    def refuse(self, conn: Any, _head: RequestHead) -> None:
        self.refused.append(conn)

    def join(self, *conns: Any) -> None:
        for conn in conns:
            self.turns.join(conn, HEAD, self.now)

    def give_all(self) -> None:
        while self.turns:
            self.turns.give()


def test_the_oldest_connection_is_served_first() -> None:
    loop = Loop()
    loop.join(1, 2, 3)
    loop.turns.give()
    assert (loop.served, loop.refused) == ([1, 2, 3], [])


def test_connections_are_served_for_a_limited_time_so_that_others_can_join() -> None:
    loop = Loop(takes_s=0.004)
    loop.join(*range(10))
    loop.turns.give()
    assert loop.served == [0, 1, 2]
    assert loop.turns


def test_a_connection_that_waited_too_long_is_refused_and_the_next_is_served() -> None:
    loop = Loop()
    loop.join(1)
    loop.now += PATIENCE_S + 0.01
    loop.join(2)
    loop.turns.give()
    assert (loop.served, loop.refused) == ([2], [1])


def test_a_connection_that_would_wait_too_long_is_refused_at_once() -> None:
    loop = Loop(takes_s=1 / 128)
    loop.join(*range(2000))
    loop.give_all()
    assert len(loop.served) == 129  # the queue learns how long each takes
    loop.served.clear()
    loop.refused.clear()
    loop.join(*range(2000))
    assert len(loop.refused) > 1800
    loop.give_all()
    assert loop.served == list(range(len(loop.served)))
    assert len(loop.served) > 100


def test_many_connections_at_once_are_all_served_if_there_is_time() -> None:
    loop = Loop(takes_s=0.0004)
    loop.join(*range(2000))
    loop.give_all()
    assert (loop.served, loop.refused) == (list(range(2000)), [])


def test_old_slow_requests_are_forgotten() -> None:
    loop = Loop(takes_s=0.01)
    loop.join(*range(100))
    loop.give_all()
    loop.takes_s = 0.0004
    for _ in range(60):
        loop.join(*range(100))
        loop.give_all()
    loop.refused.clear()
    loop.join(*range(2000))
    assert loop.refused == []


def test_no_more_connections_wait_than_are_allowed() -> None:
    loop = Loop(takes_s=0.0)
    for _ in range(20):
        loop.join(*range(1000))
        loop.give_all()
    loop.join(*range(5000))
    assert len(loop.refused) == 5000 - 3072
