"""Keeps what was just made, a page or the list of groups, for the next request that asks for the same."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from karrot.clock import Clock

__all__ = ["Again"]

T = TypeVar("T")

_SHARE = 200
"""What was made is shown again for so many times as long as the making took, rests included: less than one event in a
hundred meets it, so that the 99th percentile of their latencies does not."""

_LONGEST_MS = 2000
"""Nobody looks at older groups, even on a machine that has no time for this."""

_KEPT = 50


class Again(Generic[T]):
    """Things by address. One thread makes, others wait: twenty browsers cost what one or two do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[int, T]] = OrderedDict()

    def get(self, address: str, make: Callable[[], T]) -> T:
        """The thing of an address, made now or at most two seconds ago. Raises what ``make`` raises."""
        with self._lock:
            began = self._clock.boot_ms()
            kept = self._kept.get(address)
            if kept is not None and began < kept[0]:
                return kept[1]
            made = make()
            ended = self._clock.boot_ms()
            self._kept[address] = (ended + min(_LONGEST_MS, _SHARE * (ended - began)), made)
            self._kept.move_to_end(address)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return made
