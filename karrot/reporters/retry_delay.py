"""When to ask a destination again that did not take something."""

from collections.abc import Callable

__all__ = ["Retry"]

_FIRST_MS = 1_000
_LONGEST_MS = 60_000


class Retry:
    """Waits that double from failure to failure, from a second to a minute, by a clock that nobody sets."""

    def __init__(self, boot_ms: Callable[[], int]) -> None:
        self._boot_ms = boot_ms
        self._failures = 0
        self._due_ms = 0

    @property
    def is_waiting(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    def due_in(self) -> float:
        """Seconds until the next attempt; 0 or less: now."""
        return (self._due_ms - self._boot_ms()) / 1000 if self._failures else 0.0

    def failed(self) -> None:
        """After an attempt that failed."""
        self._failures += 1
        self._due_ms = self._boot_ms() + min(_LONGEST_MS, _FIRST_MS * 2 ** min(self._failures - 1, 30))

    def went_well(self) -> None:
        """After one that did not."""
        self._failures = 0
