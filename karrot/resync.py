"""Read every group from Burrow's REST API now and then, for what a webhook lost and for which groups are deleted."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import structlog

from karrot import telemetry
from karrot.burrow.client import Burrow, BurrowError, NotFound, Unaddressable, Unavailable, UnknownCall
from karrot.clock import Clock
from karrot.event import GroupKey, LagEvent, Source, Status
from karrot.eventlog.base import EventLog, LogUnavailableError, OverloadedError, groups, reporter_state
from karrot.intake import Intake
from karrot.known_problems import RESYNC

_AT_ONCE = 4
_PER_SECOND = 100.0
_GIVES_UP_AFTER = 20
"""Groups in a row without an answer: ten thousand of them would take hours, and a Burrow that hangs no good."""

_MISSING_MS = 60_000

_log = structlog.get_logger(__name__)


class _Missing(NamedTuple):
    """Since when (boot clock) a group was not listed, and when (log time) it was heard last before."""

    heard_ms: int
    since_ms: int


class Resync:
    """Asks Burrow for every group, at once and then every ``interval_s``, in the worker that leads.

    A Burrow with many groups is not hurt: few questions at once, and not many in a second. What it answers goes into
    the log as observed when the question was asked, so a newer webhook wins.
    """

    def __init__(self, burrow: Burrow, intake: Intake, log: EventLog, clock: Clock, *, interval_s: float) -> None:
        self._burrow = burrow
        self._intake = intake
        self._log = log
        self._clock = clock
        self._interval_s = interval_s
        self._missing: dict[GroupKey, _Missing] = {}
        self._unanswered = 0

    def run(self, stop: threading.Event) -> None:
        """Until told to stop."""
        while not stop.is_set():
            self.once(stop)
            stop.wait(self._interval_s)
        self._burrow.close()

    def once(self, stop: threading.Event) -> None:
        """One pass. Never raises: what goes wrong is counted and kept as the state of the resync."""
        try:
            failed = self._pass(stop)
        except (BurrowError, LogUnavailableError, OverloadedError) as error:
            failed = str(error)
        except Exception as error:  # noqa: BLE001 - the outermost loop of its thread
            _log.exception("the resynchronisation failed in a way nobody expected")
            failed = f"{type(error).__name__}: {error}"
        if stop.is_set():
            return
        self._log.count(telemetry.RESYNC_RUNS.name, outcome="failed" if failed else "ok")
        with suppress(LogUnavailableError, OverloadedError):
            kept, now_ms = reporter_state(self._log, RESYNC), self._clock.wall_ms()
            if failed is not None:
                _log.warning("Burrow's REST API could not be read whole", reason=failed)
            self._log.save_reporter(kept.well(now_ms) if failed is None else kept.failing(failed, now_ms))

    def _pass(self, stop: threading.Event) -> str | None:
        """Every group of every cluster; the last thing that went wrong, if any."""
        self._unanswered = 0
        try:
            ready = self._burrow.ready()
        except UnknownCall:  # one before v1.3.5 cannot say that it has started: no group is deleted on its word
            ready = False
        failed: str | None = None
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="karrot-resync") as pool:
            for cluster in self._burrow.clusters():
                try:
                    failed = self._read(pool, stop, cluster, ready=ready) or failed
                except NotFound as error:  # gone since the list was made
                    failed = str(error)
        return failed

    def _read(self, pool: ThreadPoolExecutor, stop: threading.Event, cluster: str, *, ready: bool) -> str | None:
        """Every group of a cluster; the last thing that went wrong, if any."""
        listed = self._burrow.consumers(cluster)
        failed: str | None = None
        for error in pool.map(partial(self._ask, stop, cluster), listed):
            failed = error or failed
        if ready and listed and not stop.is_set():
            self._tell_deleted(cluster, set(listed))
        return failed

    def _ask(self, stop: threading.Event, cluster: str, consumer: str) -> str | None:
        """Ask for a group unless told to stop or nobody answered lately; return what may go better another time."""
        if self._unanswered >= _GIVES_UP_AFTER or stop.wait(_AT_ONCE / _PER_SECOND):
            return None
        asked_ms = self._clock.boot_ms()
        try:
            event = self._burrow.lag(cluster, consumer)
            self._intake.accept(event, age_ms=self._clock.boot_ms() - asked_ms)
        except (NotFound, Unaddressable) as error:  # gone since the list was made; or no URL can name it
            self._counted("not_found" if isinstance(error, NotFound) else "unaddressable")
            return None
        except (BurrowError, LogUnavailableError, OverloadedError) as error:
            self._counted("unavailable" if isinstance(error, Unavailable) else "failed")
            self._unanswered += isinstance(error, Unavailable)
            return str(error)
        self._unanswered = 0
        self._counted("taken")
        return None

    def _tell_deleted(self, cluster: str, listed: set[str]) -> None:
        """Log the end of the groups that two lists did not hold, a while apart, and that nobody heard of since."""
        now_ms = self._clock.boot_ms()
        live = takewhile(lambda each: each.key.cluster == cluster, groups(self._log, after=GroupKey(cluster, "")))
        here = {state.key: state.log_time_ms for state in live if state.key.consumer not in listed}
        self._missing = {
            key: missing for key, missing in self._missing.items() if key.cluster != cluster or key in here
        }
        for key, heard_ms in here.items():
            missing = self._missing.get(key)
            if missing is None or missing.heard_ms != heard_ms:
                self._missing[key] = _Missing(heard_ms, now_ms)
            elif now_ms - missing.since_ms >= _MISSING_MS:
                wall_ms, gone = self._clock.wall_ms(), Status.NOTFOUND.name
                self._intake.accept(LagEvent(*key, gone, total_lag=None, observed_at_ms=wall_ms, source=Source.REST))
                self._counted("deleted")
                del self._missing[key]

    def _counted(self, outcome: str) -> None:
        self._log.count(telemetry.RESYNC_GROUPS.name, outcome=outcome)
