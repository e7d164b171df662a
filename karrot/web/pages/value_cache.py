"""Makes the caches of the pages. Each cache keeps a bounded number of values, for a time or until a version changes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from karrot.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SHARE = 200
"""A throttled value is kept for 200 times as long as it took to make, sleeps included. So fewer than one event in a
hundred arrives while a value is made, and the 99th percentile of the events' latency does not change."""

_MAKERS = 16

_LONGEST_MS = 1000
"""The longest time that a throttled value is kept, even on a slow machine: replicas show an event within a second."""


class _Bounded(Generic[K, V]):
    """Up to ``size`` values. A new value replaces the value that was put longest ago. Several threads may use it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._size:
                self._values.popitem(last=False)


class TtlCache(Generic[K, V]):
    """A cache of values that expire.

    ``ttl_ms`` gets the value and the milliseconds that it took to make, and returns the lifetime of the value. Several
    threads may make values at the same time.
    """

    def __init__(self, clock: Clock, *, size: int, ttl_ms: Callable[[V, int], int]) -> None:
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._kept: _Bounded[K, tuple[int, V]] = _Bounded(size)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key. Makes it now if it is missing or too old. If ``make`` raises, nothing is kept."""
        began = self._clock.boot_ms()
        kept = self._kept.get(key)
        if kept is not None and began < kept[0]:
            return kept[1]
        made = make()
        ended = self._clock.boot_ms()
        self._kept.put(key, (ended + self._ttl_ms(made, ended - began), made))
        return made


class ThrottledCache(TtlCache[K, V]):
    """A cache that keeps a value longer if it took longer to make, but for at most a second.

    One thread makes a value and the others wait for it. So twenty browsers cost as much as one or two. A thread that
    makes another value hardly ever waits, because the making may pause.
    """

    def __init__(self, clock: Clock, *, size: int = 50) -> None:
        super().__init__(clock, size=size, ttl_ms=lambda _made, took_ms: min(_LONGEST_MS, _SHARE * took_ms))
        self._making = [threading.Lock() for _ in range(_MAKERS)]

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made now or at most a second ago. If ``make`` raises, nothing is kept."""
        with self._making[hash(key) % _MAKERS]:
            return super().get(key, make)


class VersionedCache(Generic[K, V]):
    """A cache that keeps a value until its source has a new version. For a group, that is a newer event."""

    def __init__(self, size: int = 1000) -> None:
        self._kept: _Bounded[K, tuple[object, V]] = _Bounded(size)

    def get(self, key: K, version: object, make: Callable[[V | None], V]) -> V:
        """The value of a key at a version. ``make`` gets the value of an earlier version, if the cache has one."""
        kept = self._kept.get(key)
        if kept is not None and kept[0] == version:
            return kept[1]
        made = make(None if kept is None else kept[1])
        self._kept.put(key, (version, made))
        return made
