"""Keeps each page for some seconds, so that many readers cost as much as one reader."""

import threading
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar, cast

from flask import Response, current_app, request

from karrot.clock import Clock

EXTENSION = "karrot-pages"

_SHARE = 100
"""A value is used for 100 times as long as its computation took. So about 1 % of the events arrive during a
computation, and the 99th percentile of the events' latency hardly changes."""

_LONGEST_MS = 5000
"""The longest use of a value: the interval at which a browser refreshes the page."""

_MOST = 64

V = TypeVar("V")


class _Kept:
    """One value, with the times of its making and expiry. The thread that makes the value holds ``making``."""

    def __init__(self) -> None:
        self.making = threading.Lock()
        self.made_ms = self.until_ms = 0
        self.value: Any = None


class PageCache:
    """Keeps a few pages, and the values behind them. A failed computation stores no value.

    One thread makes a value, and only the threads that need the same value wait.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[Hashable, _Kept] = {}

    def get(self, key: Hashable, make: Callable[[], V], longest_ms: int = _LONGEST_MS) -> tuple[V, int]:
        """Return the value of a key, made at most ``longest_ms`` ago, and the value's age in milliseconds."""
        with self._lock:
            kept = self._kept[key] = self._kept.pop(key) if key in self._kept else _Kept()  # the newest is the last
            if len(self._kept) > _MOST:
                del self._kept[next(iter(self._kept))]
        with kept.making:
            began_ms = self._clock.boot_ms()
            if began_ms >= kept.until_ms:
                kept.value = make()
                kept.made_ms = self._clock.boot_ms()
                kept.until_ms = kept.made_ms + min(longest_ms, _SHARE * (kept.made_ms - began_ms))
            return cast("V", kept.value), max(0, began_ms - kept.made_ms)


def page_cache() -> PageCache:
    """Return the cache of the current request's application."""
    return cast("PageCache", current_app.extensions[EXTENSION])


def kept(view: Callable[[], str]) -> Callable[[], Response]:
    """Cache a route's page by URL, because the page does not depend on the reader. The answer has the header Age."""

    @wraps(view)
    def answer() -> Response:
        page, age_ms = page_cache().get(request.url, view)
        return Response(page, mimetype="text/html", headers={"Age": str(age_ms // 1000)})

    return answer
