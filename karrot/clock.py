"""Reads the clocks: the wall clock, the boot clock, and the event log's own clock, which is derived from both."""

import time
import uuid
from pathlib import Path
from typing import NamedTuple, Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """The clock that Karrot reads: a wall clock and a boot clock."""

    @property
    def boot_id(self) -> str:
        """The id of this boot. Compare ``boot_ms`` values only if they have the same id."""

    def wall_ms(self) -> int:
        """Epoch milliseconds, UTC. The value can jump when somebody sets the clock."""

    def boot_ms(self) -> int:
        """Milliseconds since a fixed time in this boot. It never goes back, and counts sleep if the system can."""


class SystemClock:
    """The machine's clocks.

    Without ``/proc`` a boot has no id. Then every start of the service counts as a boot: the parent process creates the
    clock, and its workers inherit it.
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


class Anchor(NamedTuple):
    """The same moment on all three clocks. It is stored with each commit and read at the next start."""

    boot_id: str
    boot_ms: int
    wall_ms: int
    log_ms: int


class LogTime:
    """The event log's own clock. The ages of events stay correct when the system clock is set.

    It advances with the boot clock within one boot, and by max(0, wall-clock difference) from one boot to the next.
    """

    def __init__(self, clock: Clock, anchor: Anchor | None) -> None:
        self._clock = clock
        if anchor is None:
            log_ms = clock.wall_ms()
        elif anchor.boot_id == clock.boot_id:
            log_ms = anchor.log_ms + max(0, clock.boot_ms() - anchor.boot_ms)
        else:
            log_ms = anchor.log_ms + max(0, clock.wall_ms() - anchor.wall_ms)
        self._base = log_ms - clock.boot_ms()

    def now(self) -> int:
        """Milliseconds. They are close to epoch milliseconds if the wall clock was always correct."""
        return self._base + self._clock.boot_ms()

    def anchor(self) -> Anchor:
        """The current time on all three clocks, to be stored."""
        boot_ms = self._clock.boot_ms()
        return Anchor(self._clock.boot_id, boot_ms, self._clock.wall_ms(), self._base + boot_ms)
