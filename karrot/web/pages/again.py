"""A page that was just made, for the next one who asks for the very same."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from karrot.clock import Clock

__all__ = ["Again"]

T = TypeVar("T")

_SHARE = 200
"""What was made is shown again for so many times as long as the making took: a second or two, as of a `Board`."""

_LONGEST_MS = 2000
_KEPT = 50


class Again(Generic[T]):
    """Pages by address. One thread makes, others wait: twenty browsers cost what one or two do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[int, T]] = OrderedDict()

    def get(self, address: str, make: Callable[[], T]) -> T:
        """The page of an address, made now or a moment ago. Raises what ``make`` raises."""
        with self._lock:
            began = self._clock.boot_ms()
            kept = self._kept.get(address)
            if kept is not None and began < kept[0]:
                return kept[1]
            page = make()
            ended = self._clock.boot_ms()
            self._kept[address] = (ended + min(_LONGEST_MS, _SHARE * (ended - began)), page)
            self._kept.move_to_end(address)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return page
