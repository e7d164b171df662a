"""Gives the time: by the wall clock, and by a clock that cannot be set. A `Clock` is passed as an argument."""

import time
import uuid
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """What Karrot needs to know of time."""

    @property
    def boot_id(self) -> str:
        """Names the span in which ``boot_ms`` values may be compared."""

    def wall_ms(self) -> int:
        """Epoch milliseconds, UTC; may jump."""

    def boot_ms(self) -> int:
        """Milliseconds since some moment of this boot; never goes back, goes on during sleep where it can."""


class SystemClock:
    """The machine's clocks.

    Where the system does not name its boots (no ``/proc``), every start of the service counts as one; the parent
    makes the clock, its workers inherit it.
    """

    def __init__(self) -> None:
        self._boot_id = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else str(uuid.uuid4())
        self._boot_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    @property
    def boot_id(self) -> str:
        """The kernel's id of this boot."""
        return self._boot_id

    def wall_ms(self) -> int:
        """Epoch milliseconds, UTC."""
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        """Milliseconds of the boot clock."""
        return time.clock_gettime_ns(self._boot_clock) // 1_000_000
