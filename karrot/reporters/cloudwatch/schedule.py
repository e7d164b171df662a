"""When to send next: at a fixed rate, and after a fault as that kind of fault deserves."""

from collections.abc import Callable
from random import Random

from karrot.reporters.cloudwatch.faults import FaultKind
from karrot.reporters.retry_delay import Backoff

__all__ = ["Schedule"]

_FIRST_S = 1.0
"""After a start there may be values that a crash left unsent."""

_SLOWLY_S = 30.0
_THROTTLED = Backoff(0.5, 60.0)
_SLOW = frozenset({FaultKind.CREDENTIALS, FaultKind.PERMISSION, FaultKind.REGION})


class Schedule:
    """Deadlines ``interval_s`` apart on a clock that nobody sets, whatever a send takes; missed ones are left out.

    After a fault: slowly where a person has to act, else sooner than the next deadline at first, then with waits that
    double, each spread at random, so that many publishers do not come back at once.
    """

    def __init__(self, interval_s: float, monotonic: Callable[[], float], random: Random) -> None:
        self._interval_s = interval_s
        self._monotonic = monotonic
        self._unavailable = Backoff(1.0, min(60.0, interval_s))
        self._random = random
        self._faults = 0
        self._deadline = self._due_at = monotonic() + min(_FIRST_S, interval_s)

    def due_in(self) -> float:
        """Seconds until the next send; 0 or less: now."""
        return self._due_at - self._monotonic()

    def went_well(self) -> None:
        """After a send: the next deadline that has not passed."""
        self._faults = 0
        behind = max(0.0, self._monotonic() - self._deadline)
        self._deadline += (behind // self._interval_s + 1) * self._interval_s
        self._due_at = self._deadline

    def failed(self, kind: FaultKind) -> None:
        """After a send that a fault ended."""
        self._faults += 1
        self._due_at = self._monotonic() + self._wait_s(kind)

    def _wait_s(self, kind: FaultKind) -> float:
        if kind in _SLOW:
            return _SLOWLY_S
        backoff = _THROTTLED if kind is FaultKind.THROTTLED else self._unavailable
        return backoff.spread_seconds(self._faults, self._random)
