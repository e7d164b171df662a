"""From the log to the push reporters, by cursor, in the worker that leads.

Each reporter has a thread of its own, so none waits for another. A cursor moves after its report: after a crash a
reporter is handed one batch again, and never misses one.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

import structlog

from karrot import telemetry
from karrot.clock import Clock
from karrot.eventlog.base import (
    Cursor,
    Damaged,
    EventLog,
    LogUnavailableError,
    OverloadedError,
    ReporterState,
    StoredEvent,
)
from karrot.reporters.base import PushReporter

__all__ = ["Backoff", "Delivery", "Feed"]

_LEAD_S = 0.5
_POLL_S = 0.2
_HOUSEKEEPING_S = 5.0
_JOIN_S = 3.0
_LONGEST_ERROR = 500
_log = structlog.get_logger(__name__)


class Backoff(NamedTuple):
    """Waiting between attempts: doubled from ``first_s`` up to ``most_s``, between half of that and the whole."""

    first_s: float = 1.0
    most_s: float = 60.0

    def seconds(self, failures: int, random: Random) -> float:
        """How long to wait after the n-th failure in a row."""
        whole = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30))
        return whole * random.uniform(0.5, 1)


@dataclass(slots=True)
class Feed:
    """One reporter and its place in the log. ``step`` is one attempt; a thread calls it in turn."""

    name: str
    reporter: PushReporter
    log: EventLog
    clock: Clock
    random: Random
    backoff: Backoff = field(default_factory=Backoff)
    failures: int = 0
    state: ReporterState | None = None

    def step(self) -> float:
        """Hand on the next events, if any; return how many seconds to wait before the next step."""
        try:
            return self._step()
        except (LogUnavailableError, OverloadedError) as error:
            return self._failed("log", error)
        except Exception as error:  # noqa: BLE001 - the outermost loop: a thread that ends here delivers nothing more
            _log.exception("delivery failed in a way nobody expected", reporter=self.name)
            return self._failed("unexpected", error)

    def _step(self) -> float:
        state = self._resume()
        cursor = state.cursor or Cursor(self.log.log_id, max(0, self.log.size().first_seq - 1))
        found = self.log.read(cursor.seq)
        if not found:
            return _POLL_S
        events = self._whole(cursor, found)
        try:
            self.reporter.report(events)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger's code, and the outermost loop around it
            _log.exception("a reporter failed; it will be handed the same events again", reporter=self.name)
            return self._failed(type(error).__name__, error)
        self._succeeded(replace(state, cursor=Cursor(cursor.log_id, found[-1].seq)), len(events))
        return 0.0

    def _resume(self) -> ReporterState:
        """The state as kept; without a place where the log was replaced meanwhile."""
        if self.state is None:
            kept = {each.name: each for each in self.log.reporters()}
            self.state = kept.get(self.name, ReporterState(self.name, None))
            self.log.save_reporter(self.state)  # who has had nothing yet is seen to be behind
        if self.state.cursor is not None and self.state.cursor.log_id != self.log.log_id:
            self.state = replace(self.state, cursor=None)
        return self.state

    def _whole(self, cursor: Cursor, found: Sequence[StoredEvent | Damaged]) -> list[StoredEvent]:
        """The events that can be handed on; the others are counted."""
        # Sequence numbers have no gaps but those that pruning leaves.
        if pruned := found[0].seq - cursor.seq - 1:
            self.log.count(telemetry.REPORTER_DROPPED.name, pruned, reporter=self.name, reason="retention")
        whole = [event for event in found if isinstance(event, StoredEvent)]
        if damaged := len(found) - len(whole):
            self.log.count(telemetry.REPORTER_DROPPED.name, damaged, reporter=self.name, reason="damaged")
        return whole

    def _succeeded(self, state: ReporterState, events: int) -> None:
        self.failures = 0
        self.log.count(telemetry.REPORTER_EVENTS.name, events, reporter=self.name)
        self.state = replace(state, state="ok", last_success_ms=self.clock.wall_ms())
        self.log.save_reporter(self.state)

    def _failed(self, reason: str, error: BaseException) -> float:
        self.failures += 1
        self.log.count(telemetry.REPORTER_FAILURES.name, reporter=self.name, reason=reason)
        if self.state is not None:
            text = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
            self.state = replace(self.state, state="failing", last_error=text, last_error_ms=self.clock.wall_ms())
            with suppress(LogUnavailableError, OverloadedError):
                self.log.save_reporter(self.state)
        return self.backoff.seconds(self.failures, self.random)


class Delivery:
    """Takes the lead when it is free, then feeds the reporters and keeps the log in bounds until stopped.

    ``random`` spreads the attempts of reporters that fail.
    """

    def __init__(
        self, log: EventLog, reporters: Mapping[str, PushReporter], clock: Clock, random: Random | None = None
    ) -> None:
        self._log = log
        self._feeds = [Feed(name, each, log, clock, random or Random()) for name, each in reporters.items()]  # noqa: S311 - jitter
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
        feed.reporter.close()

    def _keep_house(self) -> None:
        """Count who fell silent, delete what is too old."""
        try:
            if expired := self._log.expire():
                self._log.count(telemetry.CONSUMERS_EXPIRED.name, expired)
            self._log.prune()
        except (LogUnavailableError, OverloadedError) as error:
            _log.warning("housekeeping has to wait", reason=str(error))
        except Exception:  # noqa: BLE001 - the outermost loop of the leader
            _log.exception("housekeeping failed in a way nobody expected")


def _repeat(stop: threading.Event, work: Callable[[], None], every_s: float) -> None:
    while not stop.is_set():
        work()
        stop.wait(every_s)
