"""Runs calls in threads that do not keep the process alive.

Python joins the threads of a ``ThreadPoolExecutor`` before the process ends. So a command whose time limit has passed
would still wait until a silent server answers, or until the client gives up.
"""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

_T = TypeVar("_T")


class DaemonThreads:
    """Runs at most ``most`` calls at once. The threads start when they are needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], object]] | None] = SimpleQueue()
        self._threads = 0
        self._is_closed = False
        self._lock = Lock()

    def submit(self, call: Callable[[], _T]) -> "Future[_T]":
        """Queue a call. After `close`, it is cancelled."""
        future: Future[_T] = Future()
        with self._lock:
            if self._is_closed:
                future.cancel()
                return future
            self._calls.put((future, call))
            if self._threads < self._most:
                Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
                self._threads += 1
        return future

    def close(self) -> None:
        """Cancel the queued calls. The threads end after the calls that they run."""
        with self._lock:
            self._is_closed = True
            with suppress(Empty):
                while True:
                    if queued := self._calls.get_nowait():
                        queued[0].cancel()
            for _ in range(self._threads):
                self._calls.put(None)

    def _work(self) -> None:
        while (queued := self._calls.get()) is not None:
            future, call = queued
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 (the reader of the result gets the error)
                    future.set_exception(error)
            del queued, future, call  # an idle thread must not keep a result
