"""Breaks long page rendering into short bursts that release the GIL, so that events are not delayed."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_BURST_S = 0.0001
_REST_S = 0.001
"""Measured with two workers on two processors: without rests the 99th percentile of posts is more than twice as high
while pages are loaded, with bursts of 0.3 ms a quarter, with these a tenth."""


def gently(
    portions: Iterable[T],
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[T]:
    """The same portions of work, with a rest between two whenever some have taken long enough."""
    begun = clock()
    for portion in portions:
        if clock() - begun >= _BURST_S:
            sleep(_REST_S)
            begun = clock()
        yield portion
