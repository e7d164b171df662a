"""Keeps a bounded number of values that are costly to make: for a time, or until their group changes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from karrot.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SHARE = 200
"""A throttled value is shown again for so many times as long as its making took, rests included: less than one event in
a hundred meets the making, so that the 99th percentile of their latencies does not."""

_LONGEST_MS = 2000
"""No page shows older groups, even on a machine that has no time for this."""


class _Bounded(Generic[K, V]):
    """Up to ``size`` values. When it is full, the value that was put longest ago goes. Any thread may call it."""

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
    """Values that are made again after a time.

    ``ttl_ms`` says how long a value is good for, by the milliseconds that its making took. Several threads may make
    values at the same time.
    """

    def __init__(self, clock: Clock, *, size: int, ttl_ms: Callable[[int], int]) -> None:
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._kept: _Bounded[K, tuple[int, V]] = _Bounded(size)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made now if it is missing or too old. Raises what ``make`` raises, and keeps nothing."""
        began = self._clock.boot_ms()
        kept = self._kept.get(key)
        if kept is not None and began < kept[0]:
            return kept[1]
        made = make()
        ended = self._clock.boot_ms()
        self._kept.put(key, (ended + self._ttl_ms(ended - began), made))
        return made


class ThrottledCache(TtlCache[K, V]):
    """Values that are good for longer the longer their making took, and for at most two seconds.

    One thread makes, the others wait for it: twenty browsers cost what one or two do.
    """

    def __init__(self, clock: Clock, *, size: int = 50) -> None:
        super().__init__(clock, size=size, ttl_ms=lambda took_ms: min(_LONGEST_MS, _SHARE * took_ms))
        self._making = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made now or at most two seconds ago. Raises what ``make`` raises."""
        with self._making:
            return super().get(key, make)


class VersionedCache(Generic[K, V]):
    """Values that are good until the version of what they are made of changes, such as the newest event of a group."""

    def __init__(self, size: int = 1000) -> None:
        self._kept: _Bounded[K, tuple[object, V]] = _Bounded(size)

    def get(self, key: K, version: object, make: Callable[[V | None], V]) -> V:
        """The value of a key at a version; ``make`` gets the value of an earlier version, if there is one."""
        kept = self._kept.get(key)
        if kept is not None and kept[0] == version:
            return kept[1]
        made = make(None if kept is None else kept[1])
        self._kept.put(key, (version, made))
        return made
