"""Hands the events of the log to the reporters, in one thread per reporter, and keeps the log within its limits.

Only the leader runs delivery. No reporter waits for another reporter. A reporter's cursor moves after the reporter has
handled the events. So after a crash, a reporter gets one batch twice, but it never misses a batch.

With PostgreSQL, a process can lose the lead: if it was frozen, or does not reach the database. Then it stops its feeds
without another report, and starts with new reporters when it leads again.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import structlog

from karrot import telemetry
from karrot.clock import Clock
from karrot.eventlog.base import (
    HOUSEKEEPING,
    Cursor,
    Damaged,
    EventLog,
    LogUnavailableError,
    OverloadedError,
    ReporterState,
    StoredEvent,
    reporter_state,
)
from karrot.reporters.base import Backoff, Bounded, PacedReporter, PushReporter, Trouble

_POLL_S = 0.2
_LEAD_S = 0.5
_HOUSEKEEPING_MS = 5_000
_RETRY = Backoff(most_s=10.0)
"""How long a worker waits after it could not lead, so that another worker can."""

_JOIN_S = 6.0
"""The seconds that a shutdown waits for reports in progress. The whole service has ten seconds to stop."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Feed(ABC):
    """Hands a reporter the next events and saves its cursor. A thread calls ``step`` repeatedly, then ``close``."""

    name: str
    log: EventLog
    clock: Clock
    random: Random
    reporter: PushReporter | PacedReporter | None
    failures: int = field(default=0, init=False)
    state: ReporterState | None = field(default=None, init=False)

    def step(self) -> float:
        """Hand over the next events, if there are any. Return the seconds to wait before the next step."""
        try:
            if not self.log.leads():  # a process that was frozen must not send first and ask later
                return _POLL_S
            return self._step(self._resume())
        except (LogUnavailableError, OverloadedError) as error:
            return self._failed("log", error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a thread that ends here ends the work of all reporters
            _log.exception("delivery failed unexpectedly", code="delivery_failed", reporter=self.name)
            return self._failed("unexpected", error)

    def close(self) -> None:
        """Hand over what is due, while this process still leads, and close the reporter."""
        self.abandon()  # each handled batch is already saved

    def abandon(self) -> None:
        """Close the reporter. There is no report after this call."""
        if self.reporter is not None:
            self.reporter.close()

    @abstractmethod
    def _step(self, state: ReporterState) -> float: ...

    def _resume(self) -> ReporterState:
        """The saved state. It has no cursor if the event log was replaced after the state was saved."""
        if self.state is None:
            self.state = reporter_state(self.log, self.name)
            self.log.save_reporter(self.state)  # so its backlog is visible before its first event
        if self.state.cursor is not None and self.state.cursor.log_id != self.log.log_id:
            self.state = replace(self.state, cursor=None)
        return self.state

    def _place(self, cursor: Cursor | None) -> Cursor:
        """The cursor. If there is none: the position just before the oldest event of the log."""
        return cursor or Cursor(self.log.log_id, max(0, self.log.size().first_seq - 1))

    def _whole(self, cursor: Cursor, found: Sequence[StoredEvent | Damaged]) -> list[StoredEvent]:
        """The events that are not damaged. This method also counts the damaged and the pruned events."""
        # Only pruning leaves gaps between sequence numbers, so a gap is the number of pruned events.
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
            self.state = self.state.failing(f"{type(error).__name__}: {error}", self.clock.wall_ms())
            with suppress(LogUnavailableError, OverloadedError):
                self.log.save_reporter(self.state)
        return Backoff().spread_seconds(self.failures, self.random)


@dataclass(slots=True)
class Unbuilt(Feed):
    """Builds the reporter. If that fails, the reporter's state says so, and the other reporters go on."""

    build: Callable[[], PushReporter | PacedReporter]

    def _step(self, _state: ReporterState) -> float:
        self.reporter = self.build()
        return 0.0


@dataclass(slots=True)
class PushFeed(Feed):
    """Hands over the events as they arrive. The cursor moves after each handled batch. A failed batch is repeated."""

    reporter: PushReporter

    def _step(self, state: ReporterState) -> float:
        cursor = self._place(state.cursor)
        found = self.log.read(cursor.seq)
        if not found:
            return _POLL_S
        events = self._whole(cursor, found)
        try:
            self.reporter.report(events)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - third-party code, and the outermost loop around it
            _log.exception(
                "a reporter failed; it will get the same events again", code="reporter_failed", reporter=self.name
            )
            return self._failed(type(error).__name__, error)
        self.failures = 0
        self.log.count(telemetry.REPORTER_EVENTS.name, len(events), reporter=self.name)
        self.state = replace(state.well(self.clock.wall_ms()), cursor=Cursor(cursor.log_id, found[-1].seq))
        self.log.save_reporter(self.state)
        return 0.0


@dataclass(slots=True)
class PacedFeed(Feed):
    """Hands over the events as they arrive, and makes the reporter send its data when they are due.

    The cursor stays just below the oldest event whose data are not sent yet. So the next leader starts with that event.
    """

    reporter: PacedReporter
    position: Cursor | None = field(default=None, init=False)
    logged_trouble: str | None = field(default=None, init=False)
    """The reason of the trouble that was logged last. ``None`` when the reporter can send again."""

    def close(self) -> None:
        """Take the new events, send them if that is still possible, save the cursor, and close the reporter."""
        try:
            state = self._resume()
            while self._take(state):
                pass
            self._send(state)
        except (LogUnavailableError, OverloadedError) as error:
            _log.warning(
                "the last values were not sent", code="last_values_not_sent", reporter=self.name, reason=str(error)
            )
        except Exception:  # noqa: BLE001 - one reporter must not prevent the service from stopping
            _log.exception("the last values were not sent", code="last_values_not_sent", reporter=self.name)
            self.log.count(telemetry.REPORTER_FAILURES.name, reporter=self.name, reason="unexpected")
        finally:
            self.abandon()

    def _step(self, state: ReporterState) -> float:
        took = self._take(state)
        if self.reporter.due_in() <= 0:
            self._send(state)
        return 0.0 if took else min(_POLL_S, max(0.0, self.reporter.due_in()))

    def _take(self, state: ReporterState) -> int:
        """Hand over the next page of events, if the reporter has room for it. Return the number of rows in the page."""
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
            if self.logged_trouble is not None:
                _log.info("a reporter can send again", reporter=self.name)
            self.failures, self.logged_trouble = 0, None
            state = state.well(self.clock.wall_ms())
        # If send() made no call, the saved state still says whether the last call succeeded.
        cursor = self.position
        if cursor is not None and (owed := self.reporter.owed(cursor.log_id)) is not None:
            cursor = Cursor(cursor.log_id, min(cursor.seq, owed - 1))
        self.state = replace(state, cursor=cursor)
        self.log.save_reporter(self.state)

    def _troubled(self, state: ReporterState, trouble: Trouble) -> ReporterState:
        if self.logged_trouble != trouble.reason:
            _log.warning(
                "a reporter cannot send",
                code="reporter_cannot_send",
                reporter=self.name,
                fault=trouble.reason,
                reason=trouble.text,
            )
            self.logged_trouble = trouble.reason
        self.failures += 1
        self.log.count(telemetry.REPORTER_FAILURES.name, reporter=self.name, reason=trouble.reason)
        return state.failing(trouble.text, self.clock.wall_ms())


class Delivery:
    """Waits until the lead is free and takes it. Then it feeds the reporters and keeps the log within its limits.

    ``reporters`` has the functions that build the reporters, by name. They are called each time this process takes the
    lead. ``random`` spreads the retries of failed reporters. ``alongside`` are the other tasks of the leader. Each task
    runs in its own thread. It gets a stop event as its argument, and returns when this event is set.
    """

    def __init__(
        self,
        log: EventLog,
        reporters: Mapping[str, Callable[[], PushReporter | PacedReporter]],
        clock: Clock,
        random: Random | None = None,
        alongside: Sequence[Callable[[threading.Event], None]] = (),
    ) -> None:
        self._log = log
        self._reporters = reporters
        self._clock = clock
        self._alongside = alongside
        self._jitter = random or Random()  # noqa: S311 - it only spreads retries
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="karrot-delivery", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the reports that are in progress, give up the lead and close the reporters."""
        self._stop.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                if not self._log.lead():
                    self._stop.wait(_LEAD_S)
                    continue
                failures = 0 if self._lead() else failures + 1
            except Exception:  # noqa: BLE001 - the outermost loop: a thread that ends here never leads again
                _log.exception("this worker cannot lead now and tries again", code="lead_failed")
                failures += 1
            if failures:
                self._stop.wait(_RETRY.spread_seconds(failures, self._jitter))

    def _lead(self) -> bool:
        """Run every task of the leader until this process stops or loses the lead. False: a task failed before that."""
        over = threading.Event()
        threads: list[threading.Thread] = []
        try:
            _log.info("this worker leads")
            tasks = [(f"karrot-{name}", partial(self._run_feed, name, of)) for name, of in self._reporters.items()]
            tasks += [(f"karrot-duty-{number}", partial(work)) for number, work in enumerate(self._alongside)]
            for name, task in tasks:
                thread = threading.Thread(target=self._run_task, args=(task, over), name=name, daemon=True)
                thread.start()
                threads.append(thread)
            due_ms = self._clock.boot_ms()
            while not over.is_set() and not self._stop.is_set() and self._log.leads():
                if self._clock.boot_ms() >= due_ms:
                    self._keep_house()
                    due_ms = self._clock.boot_ms() + _HOUSEKEEPING_MS
                self._stop.wait(_LEAD_S)
            failed = over.is_set()
            if not self._stop.is_set():
                _log.warning("this worker does not lead any more", code="lead_ended")
        finally:
            over.set()
            for thread in threads:
                # A thread of this term must not write in the next one, so without a stop there is no limit of time.
                thread.join(_JOIN_S if self._stop.is_set() else None)
            self._log.resign()
        return not failed

    def _run_task(self, task: Callable[[threading.Event], None], over: threading.Event) -> None:
        """Run one task of the leader. If it ends early, the term ends, and the next one begins with new threads."""
        try:
            task(over)
        except Exception:  # noqa: BLE001 - the outermost place of a thread
            name = threading.current_thread().name
            _log.exception("a task of the leader failed, so the lead ends", code="leader_task_failed", task=name)
        finally:
            over.set()

    def _keep_house(self) -> None:
        """Count groups that became silent, and delete events that are too old."""
        try:
            if expired := self._log.expire():
                self._log.count(telemetry.CONSUMERS_EXPIRED.name, expired)
            self._log.prune()
            self._log.remember(*HOUSEKEEPING, str(self._log.log_time_ms()).encode())
        except (LogUnavailableError, OverloadedError) as error:
            _log.warning("housekeeping failed and will be tried again", code="housekeeping_failed", reason=str(error))
            reason = "overloaded" if isinstance(error, OverloadedError) else "log_unavailable"
            self._log.count(telemetry.LOG_HOUSEKEEPING_FAILURES.name, reason=reason)
        except Exception:  # noqa: BLE001 - the outermost loop of the leader
            _log.exception("housekeeping failed unexpectedly", code="housekeeping_unexpected")
            self._log.count(telemetry.LOG_HOUSEKEEPING_FAILURES.name, reason="unexpected")

    def _run_feed(self, name: str, build: Callable[[], PushReporter | PacedReporter], over: threading.Event) -> None:
        feed: Feed = Unbuilt(name, self._log, self._clock, self._jitter, None, build)
        wait_s = 0.0
        while not over.wait(wait_s):
            wait_s = feed.step()
            if isinstance(feed, Unbuilt) and feed.reporter is not None:
                kind = PacedFeed if isinstance(feed.reporter, PacedReporter) else PushFeed
                feed = kind(name, self._log, self._clock, self._jitter, feed.reporter)  # type: ignore[arg-type]
        if self._log.leads():
            feed.close()
        else:
            feed.abandon()
