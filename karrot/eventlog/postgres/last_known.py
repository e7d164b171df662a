"""Keeps what a process read last from the database, for the time while the database is away."""

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from karrot.eventlog.base import LogUnavailableError

T = TypeVar("T")

_READ_AGAIN_S = 15.0


class LastKnown:
    """The newest results of some reads, by name. ``boot_ms`` is the boot clock.

    A result is used for ``keep_ms`` after it was read.
    """

    def __init__(self, boot_ms: Callable[[], int], *, keep_ms: int) -> None:
        self._boot_ms = boot_ms
        self._keep_ms = keep_ms
        self._known: dict[str, tuple[int, Any]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def or_last(self, name: str, read: Callable[[], T]) -> T:
        """What ``read`` returns. If the database is away: what it returned last, if that is recent enough."""
        try:
            value = read()
        except LogUnavailableError:
            at_ms, known = self._known.get(name, (-sys.maxsize, None))
            if self._boot_ms() - at_ms > self._keep_ms:
                raise
            return cast("T", known)
        self._known[name] = (self._boot_ms(), value)
        return value

    def keep_fresh(self, reads: Sequence[Callable[[], object]]) -> None:
        """Read everything in a thread from time to time, until ``close``.

        Requests do not do this well enough: a Prometheus that keeps its connection scrapes one of several workers.
        """

        def run() -> None:
            wait_s = 0.0
            while not self._stop.wait(wait_s):
                for read in reads:
                    with contextlib.suppress(LogUnavailableError):
                        if not self._stop.is_set():
                            read()
                wait_s = min(_READ_AGAIN_S, self._keep_ms / 4000)

        self._thread = threading.Thread(target=run, name="karrot-last-known", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Do not read any more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
