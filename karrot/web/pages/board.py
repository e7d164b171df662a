"""Every live group at one moment, read once for all who look."""

import threading
from collections.abc import Sequence

from karrot.clock import Clock
from karrot.eventlog.base import EventLog, GroupState, groups

__all__ = ["Board"]

_SHARE = 20
"""What was read is shown again for so many times as long as the reading took: readers get a twentieth of the time."""


class Board:
    """The groups, at most 20 times as old as it takes to read them: 3 s of 10,000 groups, nothing of 100.

    One thread reads, others wait for it. A worker has one, so whoever looks costs hardly more than who looks alone.
    """

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._states: Sequence[GroupState] = ()
        self._good_until_ms = 0

    def states(self) -> Sequence[GroupState]:
        """The groups that have not expired and are not deleted, by key."""
        with self._lock:
            began = self._clock.boot_ms()
            if began >= self._good_until_ms:
                self._states = tuple(groups(self._log))
                ended = self._clock.boot_ms()
                self._good_until_ms = ended + _SHARE * (ended - began)
            return self._states
