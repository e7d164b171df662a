"""Lets time pass for the resyncs of a Burrow that reads commits, or no more commits."""

from dataclasses import dataclass

from karrot.burrow_cut_off import keep
from karrot.eventlog.event_log import EventLog
from support.manual_clock import ManualClock

INTERVAL_S = 120
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


@dataclass
class ResyncedBurrow:
    """A Burrow of the cluster ``prod-eu`` whose clock is ``ahead_ms`` ahead, and the log that resync writes to."""

    log: EventLog
    clock: ManualClock
    ahead_ms: int = 0
    newest_ms: int = 1
    after_s: int = 5 * MINUTE_S
    moving: frozenset[str] = frozenset()

    def reads_commits(self, seconds: float, *, interval_s: float = INTERVAL_S) -> None:
        """Let groups commit for some time."""
        for _ in range(round(seconds / interval_s)):
            self.newest_ms = self.clock.wall + self.ahead_ms
            self.reads_none(interval_s, interval_s=interval_s)

    def reads_none(self, seconds: float, *, interval_s: float = INTERVAL_S) -> None:
        """Let some time pass without commits."""
        for _ in range(round(seconds / interval_s)):
            self.clock.advance(int(interval_s * 1000))
            keep(self.log, {"prod-eu": self.newest_ms}, self.moving, interval_s, self.after_s)


def cut_off_from_kafka(log: EventLog, clock: ManualClock) -> None:
    """Let commits come for an hour, and then none for ten minutes."""
    burrow = ResyncedBurrow(log, clock)
    burrow.reads_commits(HOUR_S)
    burrow.reads_none(10 * MINUTE_S)
