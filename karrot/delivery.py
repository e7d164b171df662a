"""Hands the events of the log to the reporters, in one thread per reporter, and keeps the log within its limits.

Only the leader runs delivery. No reporter waits for another reporter. A reporter's cursor moves when a report returns.
So after a crash, a reporter may get the events of one report twice, but it never misses an event.

With PostgreSQL, a process loses the lead if it was frozen or cannot reach the database. A process that lost the lead
stops its feeds without another report. When it leads again, it builds new reporters.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random

import structlog

from karrot import mutes, telemetry
from karrot.clock import Clock
from karrot.eventlog.base import HOUSEKEEPING, Cursor, LogUnavailableError, OverloadedError, ReporterState
from karrot.eventlog.event_log import EventLog, reporter_state
from karrot.reporters.base import IdleReporter, PushReporter, ReportFailed, Unreported, retry_delay_s

_POLL_S = 0.2
_LEAD_S = 0.5
_HOUSEKEEPING_MS = 5_000
_LEAD_AGAIN_S = 10.0
"""A worker that could not lead waits at most this long, so that another worker can lead."""

_JOIN_S = 6.0
"""The seconds that a shutdown waits for reports in progress. The whole service has ten seconds to stop."""

_log = structlog.get_logger(__name__)


class Feed:
    """Builds a reporter, makes it report when that is due, and saves its cursor. A thread calls ``step`` repeatedly.

    A report is due every ``every_s`` seconds by the boot clock. If there is no new event when a report is due, it comes
    with the next event. A report that took longer than ``every_s`` skips the missed times.
    """

    def __init__(
        self, name: str, log: EventLog, clock: Clock, random: Random, build: Callable[[], PushReporter]
    ) -> None:
        self.name, self.log, self.clock, self.random, self.build = name, log, clock, random, build
        self.reporter: PushReporter | None = None
        self.state: ReporterState | None = None
        self.failures = 0
        # The reason of the last logged failure; `None` after a success.
        self.logged: str | None = None
        # The next report is due at the planned time, or at the retry after a failure.
        self.planned_ms = self.due_ms = 0.0

    def step(self) -> float:
        """Report if a report is due and there are new events. Return the seconds to wait before the next step."""
        try:
            if not self.log.leads():  # a process that was frozen must check the lead before it sends
                return _POLL_S
            if self.state is None:
                self.state = reporter_state(self.log, self.name)
                self.log.save_reporter(self.state)  # so that the backlog is visible before the first event
            if self.reporter is None:
                self.reporter = self.build()
                self.planned_ms = self.due_ms = self.clock.boot_ms()
            early_ms = self.due_ms - self.clock.boot_ms()
            return early_ms / 1000 if early_ms > 0 else self._report(self.reporter, self.state)
        except (LogUnavailableError, OverloadedError) as error:
            return self._failed("log", f"{type(error).__name__}: {error}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a thread that ends here ends the work of all reporters
            _log.exception("delivery failed unexpectedly", code="delivery_failed", reporter=self.name)
            return self._failed("unexpected", f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Report the new events a last time if this process still leads, and close the reporter."""
        if self.reporter is not None:
            self.due_ms = self.clock.boot_ms()
            self.step()
            if self.failures and self.state and self.log.leads():
                why = {"reporter": self.name, "reason": self.state.last_error}
                _log.warning("the last values were not sent", code="last_values_not_sent", **why)
            self.reporter.close()

    def _report(self, reporter: PushReporter, state: ReporterState) -> float:
        if state.cursor is None or state.cursor.log_id != self.log.log_id:  # the log can lack events up to the cursor
            self.state = state = replace(state, cursor=self.log.cursor(self.name))
        place = state.cursor or Cursor(self.log.log_id, max(0, self.log.size().first_seq - 1))
        events = Unreported(self.log, place)
        report: Callable[[], None] = partial(reporter.report, events)
        if is_idle := events.peek() is None:
            if events.damaged:
                self._save(state, events)
            if not isinstance(reporter, IdleReporter):
                return _POLL_S  # the report is due as soon as there is an event
            report = reporter.idle
        failed = self._try(report)
        if failed is None and is_idle:
            return _POLL_S
        if failed is None:
            if self.logged is not None:
                _log.info("a reporter can send again", reporter=self.name)
            self.failures, self.logged = 0, None
            state = state.well(self.clock.wall_ms())
        else:
            wait_s = self._failed(failed.reason, failed.text, failed.retry_in_s)
            if not failed.is_reported:
                return wait_s
            self.due_ms, state = self.planned_ms, self.state or state
        if not self.log.leads():  # another process has the cursor now
            return _POLL_S
        self._save(state, events)
        return 0.0 if events.taken and not events.is_at_end else self._plan_next(reporter)

    def _try(self, report: Callable[[], None]) -> ReportFailed | None:
        """Make a report. Return why the report failed. Repeated failures with the same reason are logged once."""
        logged = self.logged
        try:
            report()
        except (LogUnavailableError, OverloadedError):
            raise
        except ReportFailed as failed:
            self.logged = failed.reason
            if self.logged != logged:
                fault = {"fault": failed.reason, "reason": failed.text}
                _log.warning("a reporter cannot send", code="reporter_cannot_send", reporter=self.name, **fault)
            return failed
        except (Exception, SystemExit) as error:  # noqa: BLE001 - third-party code, and the outermost loop around it
            self.logged = type(error).__name__
            if self.logged != logged:
                _log.exception(
                    "a reporter failed; it will get the same events again", code="reporter_failed", reporter=self.name
                )
            return ReportFailed(self.logged, f"{self.logged}: {error}")
        return None

    def _save(self, state: ReporterState, events: Unreported) -> None:
        """Move the cursor to the last event that was taken, and count the taken and the lost events."""
        self.log.count(telemetry.REPORTER_EVENTS, events.taken, reporter=self.name)
        for reason, many in {"retention": events.pruned, "damaged": events.damaged}.items():
            if many:
                self.log.count(telemetry.REPORTER_DROPPED, many, reporter=self.name, reason=reason)
        self.state = replace(state, cursor=events.cursor)
        self.log.save_reporter(self.state)

    def _plan_next(self, reporter: PushReporter) -> float:
        """Plan the next report, and return the seconds until it is due."""
        now_ms, every_ms = self.clock.boot_ms(), reporter.every_s * 1000
        if every_ms <= 0:
            return _POLL_S
        self.planned_ms += (max(0, now_ms - self.planned_ms) // every_ms + 1) * every_ms
        self.due_ms = self.planned_ms
        return (self.due_ms - now_ms) / 1000

    def _failed(self, reason: str, text: str, retry_in_s: float | None = None) -> float:
        """Save and count a failure, and return the seconds until the next attempt."""
        self.failures += 1
        self.log.count(telemetry.REPORTER_FAILURES, reporter=self.name, reason=reason)
        if self.state is not None:
            self.state = self.state.failing(text, self.clock.wall_ms())
            with suppress(LogUnavailableError, OverloadedError):
                self.log.save_reporter(self.state)
        wait_s = retry_delay_s(self.failures, self.random) if retry_in_s is None else retry_in_s
        self.due_ms = self.clock.boot_ms() + wait_s * 1000
        return wait_s


class Delivery:
    """Waits until the lead is free and takes it. Then it feeds the reporters and keeps the log within its limits.

    ``reporters`` maps names to functions that build reporters. Each time this process takes the lead, it calls these
    functions. ``random`` spreads the retries of failed reporters. ``alongside`` are the other tasks of the leader. Each
    task runs in its own thread. It gets a stop event as its argument, and returns when this event is set.
    """

    def __init__(
        self,
        log: EventLog,
        reporters: Mapping[str, Callable[[], PushReporter]],
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
                self._stop.wait(retry_delay_s(failures, self._jitter, most_s=_LEAD_AGAIN_S))

    def _lead(self) -> bool:
        """Run the leader's tasks until this process stops or loses the lead. Returns false if a task failed before."""
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
                # A thread of this term must not write in the next term. So only a stop of the service limits this wait.
                thread.join(_JOIN_S if self._stop.is_set() else None)
            self._log.resign()
        return not failed

    def _run_task(self, task: Callable[[threading.Event], None], over: threading.Event) -> None:
        """Run one task of the leader. If the task ends early, the term ends, and the next term has new threads."""
        try:
            task(over)
        except Exception:  # noqa: BLE001 - the outermost place of a thread
            name = threading.current_thread().name
            _log.exception("a task of the leader failed, so the lead ends", code="leader_task_failed", task=name)
        finally:
            over.set()

    def _keep_house(self) -> None:
        try:
            if expired := self._log.expire():
                self._log.count(telemetry.CONSUMERS_EXPIRED, expired)
            self._log.prune()
            mutes.end(self._log, lambda mute: mute.until_ms <= self._clock.wall_ms())
            self._log.remember(*HOUSEKEEPING, str(self._log.log_time_ms()).encode())
        except (LogUnavailableError, OverloadedError) as error:
            _log.warning("housekeeping failed and will be tried again", code="housekeeping_failed", reason=str(error))
            reason = "overloaded" if isinstance(error, OverloadedError) else "log_unavailable"
            self._log.count(telemetry.LOG_HOUSEKEEPING_FAILURES, reason=reason)
        except Exception:  # noqa: BLE001 - the outermost loop of the leader
            _log.exception("housekeeping failed unexpectedly", code="housekeeping_unexpected")
            self._log.count(telemetry.LOG_HOUSEKEEPING_FAILURES, reason="unexpected")

    def _run_feed(self, name: str, build: Callable[[], PushReporter], over: threading.Event) -> None:
        feed = Feed(name, self._log, self._clock, self._jitter, build)
        wait_s = 0.0
        while not over.wait(wait_s):
            wait_s = feed.step()
        feed.close()
