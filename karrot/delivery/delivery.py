"""Run one thread for each reporter, in the worker that leads, and keep the log within its bounds.

Each reporter has a thread of its own, so none waits for another. A cursor moves after its report: after a crash a
reporter is handed one batch again, and never misses one.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from random import Random

import structlog

from karrot import telemetry
from karrot.clock import Clock
from karrot.delivery.feed import Feed, PacedFeed, PushFeed
from karrot.eventlog.base import EventLog, LogUnavailableError, OverloadedError
from karrot.reporters.base import PacedReporter, PushReporter

_LEAD_S = 0.5
_HOUSEKEEPING_S = 5.0
_JOIN_S = 6.0
"""How long the end waits for reports under way; the whole service has ten seconds."""

_log = structlog.get_logger(__name__)


class Delivery:
    """Takes the lead when it is free, then feeds the reporters and keeps the log in bounds until stopped.

    ``random`` spreads the attempts of reporters that fail. ``alongside`` is what else the leading worker does: each
    has a thread of its own and returns when the event that it is given is set.
    """

    def __init__(
        self,
        log: EventLog,
        reporters: Mapping[str, PushReporter | PacedReporter],
        clock: Clock,
        random: Random | None = None,
        alongside: Sequence[Callable[[threading.Event], None]] = (),
    ) -> None:
        self._log = log
        self._alongside = alongside
        jitter = random or Random()  # noqa: S311 - it only spreads attempts
        self._feeds = [_feed_of(name, each, log, clock, jitter) for name, each in reporters.items()]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="karrot-delivery", daemon=True)

    def start(self) -> None:
        """Begin to wait for the lead."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the reports under way, give up the lead and close the reporters."""
        self._stop.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._log.lead():
            if self._stop.wait(_LEAD_S):
                return
        _log.info("this worker leads")
        threads = [
            threading.Thread(target=self._feed, args=(feed,), name=f"karrot-{feed.name}", daemon=True)
            for feed in self._feeds
        ]
        threads += [threading.Thread(target=work, args=(self._stop,), daemon=True) for work in self._alongside]
        for thread in threads:
            thread.start()
        _repeat(self._stop, self._keep_house, _HOUSEKEEPING_S)
        for thread in threads:
            thread.join(_JOIN_S)
        self._log.resign()

    def _feed(self, feed: Feed) -> None:
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            wait_s = feed.step()
        feed.close()

    def _keep_house(self) -> None:
        """Count groups that fell silent, delete events that are too old."""
        try:
            if expired := self._log.expire():
                self._log.count(telemetry.CONSUMERS_EXPIRED.name, expired)
            self._log.prune()
        except (LogUnavailableError, OverloadedError) as error:
            _log.warning("housekeeping has to wait", reason=str(error))
            self._count_failure("overloaded" if isinstance(error, OverloadedError) else "log_unavailable")
        except Exception:  # noqa: BLE001 - the outermost loop of the leader
            _log.exception("housekeeping failed in a way nobody expected")
            self._count_failure("unexpected")

    def _count_failure(self, reason: str) -> None:
        self._log.count(telemetry.LOG_HOUSEKEEPING_FAILURES.name, reason=reason)


def _feed_of(name: str, reporter: PushReporter | PacedReporter, log: EventLog, clock: Clock, random: Random) -> Feed:
    if isinstance(reporter, PacedReporter):
        return PacedFeed(name, log, clock, random, reporter)
    return PushFeed(name, log, clock, random, reporter)


def _repeat(stop: threading.Event, work: Callable[[], None], every_s: float) -> None:
    while not stop.is_set():
        work()
        stop.wait(every_s)
