"""Posts events to Karrot from another process, and records the acknowledged ones."""

import os
import time
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import IO, TYPE_CHECKING, NamedTuple, Self

from support.burrow.recorded_bodies import warn_body

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

_CONTEXT = get_context("spawn")  # a forked child would hold the parent's sockets and locks
_ANSWER_S = 10.0
_REST_S = 0.02


class AnswerCounts(NamedTuple):
    """The numbers of answers so far. ``other`` are answers that are neither 202 nor 503."""

    accepted: int
    refused: int
    other: int
    broken: int


class PostingProcess:
    """Threads in another process that post over reused connections.

    Each event has a new group name, or one of ``groups``. ``rate`` is in requests per second over all threads; 0 means
    that each thread posts again after each answer. With a ``directory``, every acknowledged name is on disk there
    before the next request of its thread: one file per thread, one line per name.
    """

    def __init__(
        self, port: int, *, directory: Path | None = None, threads: int = 4, rate: float = 0, groups: int = 0
    ) -> None:
        self._directory = directory
        self._counts = [_CONTEXT.Value("q", 0) for _ in AnswerCounts._fields]
        self._stop = _CONTEXT.Event()
        plan = _Plan(port, directory, threads, rate, groups)
        self._process = _CONTEXT.Process(target=_post_all, args=(plan, self._stop, self._counts), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._process.join()

    @property
    def tallies(self) -> AnswerCounts:
        return AnswerCounts(*(each.value for each in self._counts))

    def acknowledged(self) -> set[str]:
        """Return the acknowledged names on disk."""
        assert self._directory is not None
        return {name for file in self._directory.iterdir() for name in file.read_text().splitlines()}


class _Plan(NamedTuple):
    port: int
    directory: Path | None
    threads: int
    rate: float
    groups: int


def _post_all(plan: _Plan, stop: Event, counts: list["Synchronized[int]"]) -> None:
    threads = [Thread(target=_post, args=(plan, number, stop, counts)) for number in range(plan.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _post(plan: _Plan, number: int, stop: Event, counts: list["Synchronized[int]"]) -> None:
    accepted, refused, other, broken = counts
    target = os.devnull if plan.directory is None else plan.directory / f"acknowledged-{number}"
    turns = count()
    started = time.monotonic()
    with open(target, "a", encoding="utf-8") as file:  # noqa: PTH123 - a path or the name of a device
        while not stop.is_set():
            with closing(HTTPConnection("127.0.0.1", plan.port, timeout=_ANSWER_S)) as connection:
                try:
                    while not stop.is_set():
                        turn = next(turns)
                        _await_turn(plan, started, turn, stop)
                        name = f"{number}-{turn % plan.groups if plan.groups else turn}"
                        status = _ask(connection, name)
                        if status == 202:
                            _keep(file, name, durably=plan.directory is not None)
                        _add({202: accepted, 503: refused}.get(status, other))
                except (OSError, HTTPException):
                    _add(broken)
                    stop.wait(_REST_S)


def _await_turn(plan: _Plan, started: float, turn: int, stop: Event) -> None:
    if plan.rate:
        due = started + turn * plan.threads / plan.rate
        stop.wait(max(0.0, due - time.monotonic()))


def _ask(connection: HTTPConnection, name: str) -> int:
    connection.request("POST", "/burrow", warn_body(name))
    response = connection.getresponse()
    response.read()
    return response.status


def _keep(file: IO[str], name: str, *, durably: bool) -> None:
    if durably:
        file.write(f"{name}\n")
        file.flush()
        os.fsync(file.fileno())


def _add(tally: "Synchronized[int]") -> None:
    with tally.get_lock():
        tally.value += 1
