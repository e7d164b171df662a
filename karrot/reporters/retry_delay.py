"""Computes the delay before the next attempt at a failed destination. The delay doubles after each failure."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple


class Backoff(NamedTuple):
    """A delay that doubles with each failure, from ``first_s`` up to ``most_s``."""

    first_s: float = 1.0
    most_s: float = 60.0

    def seconds(self, failures: int) -> float:
        """The delay after the n-th failure in a row."""
        return min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30))

    def spread_seconds(self, failures: int, random: Random) -> float:
        """A random delay between half of `seconds` and all of it. So many senders do not retry at the same time."""
        return self.seconds(failures) * random.uniform(0.5, 1)


class Retry:
    """When to try one destination again, by the boot clock. The delay is 1 s, then 2 s, and so on up to a minute."""

    def __init__(self, boot_ms: Callable[[], int]) -> None:
        self._boot_ms = boot_ms
        self._failures = 0
        self._due_ms = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    def due_in(self) -> float:
        """Seconds until the next attempt. 0 or less means now."""
        return (self._due_ms - self._boot_ms()) / 1000 if self._failures else 0.0

    def failed(self) -> None:
        """Record an attempt that failed."""
        self._failures += 1
        self._due_ms = self._boot_ms() + 1000 * Backoff().seconds(self._failures)

    def went_well(self) -> None:
        """Record an attempt that succeeded."""
        self._failures = 0
