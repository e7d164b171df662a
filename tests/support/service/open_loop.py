"""Sends requests at their due times, whether or not earlier ones were answered: an open loop.

A closed loop slows down together with the server that it measures, and so hides how long a request would have waited.
Here every latency counts from the time at which the request was due, so a delay of the client itself counts too.

Connections are used as in Go's ``http.Transport``, and so in Burrow: an idle one if there is one, otherwise a new one.
At most two idle connections are kept.
"""

import resource
import select
import socket
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

_IDLE = 2
_HOSTS = 200
"""The source addresses of the connections. A single one runs out of ports, and the search for a free port is slow."""
_BIND_ADDRESS_NO_PORT = (
    24  # IP_BIND_ADDRESS_NO_PORT of linux/in.h: the kernel chooses the port when the destination is known
)
_PATIENCE_S = 10.0
_FILES_OF_OTHERS = 200
_EVENTS = 1024
_CHUNK = 4096
_NO_ANSWER = 0


class OpenLoopResult(NamedTuple):
    """The results of the requests, in the order of their due times; times in seconds.

    For a request without an answer, ``statuses`` has 0 and ``latencies`` infinity. ``late`` is the time from the due
    time of a request to its sending; ``opened`` counts connections.
    """

    statuses: Sequence[int]
    latencies: Sequence[float]
    late: Sequence[float]
    opened: int

    def answers(self) -> dict[int, int]:
        """Return the number of answers with each status."""
        return dict(Counter(self.statuses))

    def numbers(self, status: int) -> set[int]:
        """Return the numbers of the requests with this status."""
        return {number for number, each in enumerate(self.statuses) if each == status}


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that ``percent`` of all do not exceed."""
    return sorted(values)[max(0, -int(-len(values) * percent // 100) - 1)]


def send_open_loop(port: int, due: Sequence[float], request: Callable[[int], bytes]) -> OpenLoopResult:
    """Send each ``request(number)`` ``due[number]`` seconds from now; return when all are answered or have failed."""
    return _Client(port, due, request).play()


class _Client:
    """A client with one thread and one poller; the limit of open files bounds its connections."""

    def __init__(self, port: int, due: Sequence[float], request: Callable[[int], bytes]) -> None:
        self._address = ("127.0.0.1", port)
        self._due = due
        self._request = request
        self._poller = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._waiting: dict[int, int] = {}  # the request each connection waits for, the oldest first
        self._unsent: dict[int, bytes] = {}
        self._partly: dict[int, bytes] = {}
        self._idle: list[int] = []
        self._most = _raise_limit() - _FILES_OF_OTHERS
        self._statuses = array("h", bytes(2 * len(due)))
        self._latencies = array("d", [float("inf")]) * len(due)
        self._late = array("d", bytes(8 * len(due)))
        self._opened = 0
        self._started = 0.0

    def play(self) -> OpenLoopResult:
        number, count = 0, len(self._due)
        self._started = time.monotonic()
        while number < count or self._waiting:
            now = self._now()
            while number < count and self._due[number] <= now:
                self._send(number)
                number += 1
            self._give_up(now)
            rest = max(0.0, self._due[number] - self._now()) if number < count else 1.0
            for fileno, mask in self._poller.poll(rest, _EVENTS):
                self._go_on(fileno, mask)
        for fileno in list(self._sockets):
            self._close(fileno)
        self._poller.close()
        return OpenLoopResult(self._statuses, self._latencies, self._late, self._opened)

    def _now(self) -> float:
        return time.monotonic() - self._started

    def _send(self, number: int) -> None:
        self._late[number] = self._now() - self._due[number]
        fileno = self._idle.pop() if self._idle else self._connect()
        if fileno is not None:
            self._waiting[fileno] = number
            self._write(fileno, self._request(number))

    def _connect(self) -> int | None:
        if len(self._sockets) >= self._most:
            return None
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        sock.bind((f"127.0.0.{1 + self._opened % _HOSTS}", 0))
        with suppress(BlockingIOError):
            sock.connect(self._address)
        self._sockets[sock.fileno()] = sock
        self._poller.register(sock, select.EPOLLIN)
        self._opened += 1
        return sock.fileno()

    def _write(self, fileno: int, data: bytes) -> None:
        """Send as many bytes as possible; the poller reports when there is room for the rest."""
        try:
            sent = self._sockets[fileno].send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(fileno)
            return
        if sent < len(data):
            self._unsent[fileno] = data[sent:]
            self._poller.modify(fileno, select.EPOLLIN | select.EPOLLOUT)
        elif self._unsent.pop(fileno, None):
            self._poller.modify(fileno, select.EPOLLIN)

    def _go_on(self, fileno: int, mask: int) -> None:
        if mask & select.EPOLLOUT and fileno in self._unsent:
            self._write(fileno, self._unsent[fileno])
        if mask & ~select.EPOLLOUT and fileno in self._sockets:
            self._read(fileno)

    def _read(self, fileno: int) -> None:
        try:
            data = self._sockets[fileno].recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or fileno not in self._waiting:
            self._close(fileno)
            return
        data = self._partly.pop(fileno, b"") + data
        if not _is_whole(data):
            self._partly[fileno] = data
            return
        self._take(self._waiting.pop(fileno), data)
        if len(self._idle) < _IDLE and b"\r\nconnection: close" not in data.lower():
            self._idle.append(fileno)
        else:
            self._close(fileno)

    def _take(self, number: int, answer: bytes) -> None:
        self._latencies[number] = self._now() - self._due[number]
        self._statuses[number] = int(answer[9:12])

    def _give_up(self, now: float) -> None:
        while self._waiting:
            fileno, number = next(iter(self._waiting.items()))
            if self._due[number] + _PATIENCE_S > now:
                return
            self._close(fileno)

    def _close(self, fileno: int) -> None:
        """Close a connection; its pending request stays without an answer."""
        for kept in (self._waiting, self._unsent, self._partly):
            kept.pop(fileno, None)
        if fileno in self._idle:
            self._idle.remove(fileno)
        self._sockets.pop(fileno).close()


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return bool(end) and len(body) >= int(length or 0)


def _raise_limit() -> int:
    """Raise the limit of open files of this process to the maximum."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
