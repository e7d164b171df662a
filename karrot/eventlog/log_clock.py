"""Keeps the log's own clock: the ages of events stay right when the system clock is set."""

from typing import NamedTuple

from karrot.clock import Clock


class Anchor(NamedTuple):
    """One moment on all three clocks. It is stored with each commit and read at the next start."""

    boot_id: str
    boot_ms: int
    wall_ms: int
    log_ms: int


class LogTime:
    """Advances with the boot clock within one boot, and by max(0, wall-clock difference) from one boot to the next."""

    def __init__(self, clock: Clock, anchor: Anchor | None) -> None:
        self._clock = clock
        self._base = self._log_ms_now(anchor) - clock.boot_ms()

    def now(self) -> int:
        """Milliseconds; close to the epoch's, as long as the wall clock was right."""
        return self._base + self._clock.boot_ms()

    def anchor(self) -> Anchor:
        """This moment on all three clocks, to be stored."""
        boot_ms = self._clock.boot_ms()
        return Anchor(self._clock.boot_id, boot_ms, self._clock.wall_ms(), self._base + boot_ms)

    def _log_ms_now(self, anchor: Anchor | None) -> int:
        if anchor is None:
            return self._clock.wall_ms()
        if anchor.boot_id == self._clock.boot_id:
            return anchor.log_ms + max(0, self._clock.boot_ms() - anchor.boot_ms)
        return anchor.log_ms + max(0, self._clock.wall_ms() - anchor.wall_ms)
