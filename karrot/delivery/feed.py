"""Hand a reporter the next events of the log, and save how far it has come."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

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
from karrot.reporters.base import Bounded, PacedReporter, PushReporter, Trouble
from karrot.reporters.retry_delay import Backoff

_POLL_S = 0.2
_LONGEST_ERROR = 500
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Feed(ABC):
    """``step`` is one attempt; a thread calls it in turn, then ``close`` once."""

    name: str
    log: EventLog
    clock: Clock
    random: Random
    failures: int = field(default=0, init=False)
    state: ReporterState | None = field(default=None, init=False)

    def step(self) -> float:
        """Hand on the next events, if any; return how many seconds to wait before the next step."""
        try:
            return self._step(self._resume())
        except (LogUnavailableError, OverloadedError) as error:
            return self._failed("log", error)
        except Exception as error:  # noqa: BLE001 - the outermost loop: a thread that ends here delivers nothing more
            _log.exception("delivery failed in a way nobody expected", reporter=self.name)
            return self._failed("unexpected", error)

    @abstractmethod
    def close(self) -> None:
        """Release what the reporter holds."""

    @abstractmethod
    def _step(self, state: ReporterState) -> float: ...

    def _resume(self) -> ReporterState:
        """The state as kept; without a place where the log was replaced meanwhile."""
        if self.state is None:
            kept = {each.name: each for each in self.log.reporters()}
            self.state = kept.get(self.name, ReporterState(self.name, None))
            self.log.save_reporter(self.state)  # a reporter that has had nothing yet is shown as behind
        if self.state.cursor is not None and self.state.cursor.log_id != self.log.log_id:
            self.state = replace(self.state, cursor=None)
        return self.state

    def _place(self, cursor: Cursor | None) -> Cursor:
        """The cursor, or the one before the oldest event that the log has."""
        return cursor or Cursor(self.log.log_id, max(0, self.log.size().first_seq - 1))

    def _whole(self, cursor: Cursor, found: Sequence[StoredEvent | Damaged]) -> list[StoredEvent]:
        """The events that can be handed on; the others are counted."""
        # Sequence numbers have no gaps but those that pruning leaves.
        if pruned := found[0].seq - cursor.seq - 1:
            self.log.count(telemetry.REPORTER_DROPPED.name, pruned, reporter=self.name, reason="retention")
        whole = [event for event in found if isinstance(event, StoredEvent)]
        if damaged := len(found) - len(whole):
            self.log.count(telemetry.REPORTER_DROPPED.name, damaged, reporter=self.name, reason="damaged")
        return whole

    def _failed(self, reason: str, error: BaseException) -> float:
        self.failures += 1
        self.log.count(telemetry.REPORTER_FAILURES.name, reporter=self.name, reason=reason)
        if self.state is not None:
            self.state = self._failing(self.state, f"{type(error).__name__}: {error}")
            with suppress(LogUnavailableError, OverloadedError):
                self.log.save_reporter(self.state)
        return Backoff().spread_seconds(self.failures, self.random)

    def _failing(self, state: ReporterState, text: str) -> ReporterState:
        return replace(state, state="failing", last_error=text[:_LONGEST_ERROR], last_error_ms=self.clock.wall_ms())

    def _well(self, state: ReporterState) -> ReporterState:
        return replace(state, state="ok", last_success_ms=self.clock.wall_ms())


@dataclass(slots=True)
class PushFeed(Feed):
    """Hands the events on as they come; the cursor moves after each report, and a failed one is repeated."""

    reporter: PushReporter

    def close(self) -> None:
        """After the last report."""
        self.reporter.close()

    def _step(self, state: ReporterState) -> float:
        cursor = self._place(state.cursor)
        found = self.log.read(cursor.seq)
        if not found:
            return _POLL_S
        events = self._whole(cursor, found)
        try:
            self.reporter.report(events)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger's code, and the outermost loop around it
            _log.exception("a reporter failed; it will be handed the same events again", reporter=self.name)
            return self._failed(type(error).__name__, error)
        self.failures = 0
        self.log.count(telemetry.REPORTER_EVENTS.name, len(events), reporter=self.name)
        self.state = replace(self._well(state), cursor=Cursor(cursor.log_id, found[-1].seq))
        self.log.save_reporter(self.state)
        return 0.0


@dataclass(slots=True)
class PacedFeed(Feed):
    """Hands the events on as they come and has the reporter send when it is due.

    The cursor stands one below the oldest event that still owes a send, so that the next leader reads from there.
    """

    reporter: PacedReporter
    position: Cursor | None = field(default=None, init=False)
    logged_trouble: str | None = field(default=None, init=False)
    """The trouble that was logged last and still lasts."""

    def close(self) -> None:
        """Read what is new, send it if it can still be done, and say how far that came."""
        try:
            state = self._resume()
            while self._take(state):
                pass
            self._send(state)
        except (LogUnavailableError, OverloadedError) as error:
            _log.warning("the last values were not sent", reporter=self.name, reason=str(error))
        except Exception:  # noqa: BLE001 - the end of the service must not depend on one reporter
            _log.exception("the last values were not sent", reporter=self.name)
        finally:
            self.reporter.close()

    def _step(self, state: ReporterState) -> float:
        took = self._take(state)
        if self.reporter.due_in() <= 0:
            self._send(state)
        return 0.0 if took else min(_POLL_S, max(0.0, self.reporter.due_in()))

    def _take(self, state: ReporterState) -> int:
        """Hand on the next page, if there is room for it; return how many rows it had."""
        if self.position is None or self.position.log_id != self.log.log_id:
            self.position = self._place(state.cursor)
        if isinstance(self.reporter, Bounded) and self.reporter.full():
            return 0
        found = self.log.read(self.position.seq)
        if found:
            events = self._whole(self.position, found)
            self.reporter.take(events)
            self.log.count(telemetry.REPORTER_EVENTS.name, len(events), reporter=self.name)
            self.position = Cursor(self.position.log_id, found[-1].seq)
        return len(found)

    def _send(self, state: ReporterState) -> None:
        sending = self.reporter.send()
        if sending.trouble is not None:
            state = self._troubled(state, sending.trouble)
        elif sending.calls:
            state = self._recovered(state)
        # Without a call nothing new is known.
        self.state = replace(state, cursor=self._cursor())
        self.log.save_reporter(self.state)

    def _troubled(self, state: ReporterState, trouble: Trouble) -> ReporterState:
        if self.logged_trouble != trouble.reason:
            _log.warning("a reporter cannot send", reporter=self.name, reason=trouble.reason, error=trouble.text)
            self.logged_trouble = trouble.reason
        self.failures += 1
        self.log.count(telemetry.REPORTER_FAILURES.name, reporter=self.name, reason=trouble.reason)
        return self._failing(state, trouble.text)

    def _recovered(self, state: ReporterState) -> ReporterState:
        if self.logged_trouble is not None:
            _log.info("a reporter can send again", reporter=self.name)
        self.failures, self.logged_trouble = 0, None
        return self._well(state)

    def _cursor(self) -> Cursor | None:
        if self.position is None:
            return None
        owed = self.reporter.owed(self.position.log_id)
        return self.position if owed is None else Cursor(self.position.log_id, min(self.position.seq, owed - 1))
