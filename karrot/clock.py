"""Reads the wall clock and the boot clock, and computes the event log's own clock from these two."""

import time
import uuid
from pathlib import Path
from typing import NamedTuple, Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Karrot's source of time: a wall clock and a boot clock."""

    @property
    def boot_id(self) -> str:
        """The id of this boot. Two ``boot_ms`` values are comparable only if their boots have the same id."""

    def wall_ms(self) -> int:
        """Epoch milliseconds, UTC. The value can jump when somebody sets the clock."""

    def boot_ms(self) -> int:
        """Milliseconds since a fixed time in this boot, on Linux including sleep. The value never decreases."""


class SystemClock:
    """Reads the machine's clocks.

    If the machine has no ``/proc``, each start of the service counts as a boot and gets an id. The parent process
    creates the clock, and its workers inherit the id.
    """

    def __init__(self) -> None:
        self._boot_id = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else str(uuid.uuid4())
        self._boot_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    @property
    def boot_id(self) -> str:
        return self._boot_id

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(self._boot_clock) // 1_000_000


class Anchor(NamedTuple):
    """One time on all three clocks. The event log stores an anchor with each commit and reads it at the next start."""

    boot_id: str
    boot_ms: int
    wall_ms: int
    log_ms: int


class LogTime:
    """The event log's own clock. If somebody sets the system clock, the ages of the events stay correct.

    The clock follows the boot clock within a boot, and the wall clock between boots. It never goes back.
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
        """The log time in milliseconds: close to epoch milliseconds if the wall clock was always correct."""
        return self._base + self._clock.boot_ms()

    def reach(self, log_ms: int) -> None:
        """Advance to a log time that another process has already reached. A log time in the past changes nothing."""
        self._base = max(self._base, log_ms - self._clock.boot_ms())

    def anchor(self) -> Anchor:
        """The current time on all three clocks, for storage."""
        boot_ms = self._clock.boot_ms()
        return Anchor(self._clock.boot_id, boot_ms, self._clock.wall_ms(), self._base + boot_ms)
