"""Reads every group from Burrow's REST API at intervals, to replace lost webhooks and to find deleted groups."""

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import structlog

from karrot import burrow_cut_off, telemetry
from karrot.burrow.client import Burrow, NotFound, Unaddressable
from karrot.clock import Clock
from karrot.deletions import MissingGroups
from karrot.event import LagEvent, Source, Status
from karrot.eventlog.base import LogUnavailableError, OverloadedError
from karrot.eventlog.event_log import EventLog, save_outcome
from karrot.http_client import RequestFailed, Unavailable
from karrot.intake import Intake
from karrot.runbooks_and_remedies import RESYNC

_AT_ONCE = 4
_PER_SECOND = 100.0
_GIVES_UP_AFTER = 20
"""A pass ends when this many groups in a row did not answer.

Ten thousand timeouts would take hours and only add load to a Burrow that hangs."""

_log = structlog.get_logger(__name__)


class _LogEnds(NamedTuple):
    """The key of a group's sum of log ends: two sums are comparable only if they have the same number of partitions."""

    cluster: str
    consumer: str
    partitions: int
    is_of_burrow: bool


class Resync:
    """Asks Burrow for every group at the start, and then every ``interval_s`` seconds. It runs in the leader.

    Resync sends Burrow at most 4 requests at a time and at most 100 per second. The time of observation of an answer is
    the time of its request. So a webhook that arrives after the request wins.
    """

    def __init__(
        self, burrow: Burrow, intake: Intake, log: EventLog, clock: Clock, *, interval_s: float, cut_off_s: float = 300
    ) -> None:
        self._burrow = burrow
        self._intake = intake
        self._log = log
        self._clock = clock
        self._interval_s, self._cut_off_s = interval_s, cut_off_s
        self._missing: defaultdict[str, MissingGroups] = defaultdict(MissingGroups)
        self._unanswered = 0
        self._newest: dict[str, int] = {}
        self._ends: dict[_LogEnds, int] = {}
        self._ends_before = self._ends

    def run(self, stop: threading.Event) -> None:
        """Make one pass per interval until ``stop`` is set."""
        while not stop.is_set():
            self.once(stop)
            stop.wait(self._interval_s)
        self._burrow.close()

    def once(self, stop: threading.Event) -> None:
        """Make one pass. Never raises: counts a failure and saves it as the state of the resync."""
        try:
            failed = self._pass(stop)
        except (RequestFailed, LogUnavailableError, OverloadedError) as error:
            failed = str(error)
        except Exception as error:  # noqa: BLE001 - the outermost loop of its thread
            _log.exception("the resync failed unexpectedly", code="resync_failed")
            failed = f"{type(error).__name__}: {error}"
        if stop.is_set():
            return
        self._log.count(telemetry.RESYNC_RUNS, outcome="failed" if failed else "ok")
        if failed is not None:
            _log.warning("Burrow's REST API could not be read completely", code="resync_incomplete", reason=failed)
        save_outcome(self._log, RESYNC, self._clock, failed)

    def _pass(self, stop: threading.Event) -> str | None:
        """Read every group of every cluster. Returns the last error, if any."""
        self._unanswered, self._newest, self._ends_before, self._ends = 0, {}, self._ends, {}
        ready = self._burrow.ready() or False  # an old Burrow does not report this: infer no deletions
        failed: str | None = None
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="karrot-resync") as pool:
            for cluster in self._burrow.clusters():
                try:
                    error = self._read(pool, stop, cluster, ready=ready)
                except RequestFailed as removed:  # for example, the cluster is gone
                    error = str(removed)
                # A cluster that was not read, because another cluster did not answer, shows nothing about its commits.
                if error is None and not stop.is_set() and self._unanswered < _GIVES_UP_AFTER:
                    self._newest.setdefault(cluster, 0)
                failed = error or failed
        if self._newest:
            moved = [at for at, total in self._ends.items() if total > self._ends_before.get(at, total)]
            # If commits move, but Burrow has read no new commit, the commits do not reach Burrow.
            moving = {at.cluster for at in moved} - {at.cluster for at in moved if at.is_of_burrow}
            burrow_cut_off.keep(self._log, self._newest, moving, self._interval_s, self._cut_off_s)
        return failed

    def _read(self, pool: ThreadPoolExecutor, stop: threading.Event, cluster: str, *, ready: bool) -> str | None:
        """Read every group of a cluster. Returns the last error, if any."""
        listed = self._burrow.consumers(cluster)
        failed: str | None = None
        for error in pool.map(partial(self._ask, stop, cluster), listed):
            failed = error or failed
        if ready and listed and not stop.is_set():
            self._log_deleted(cluster, set(listed))
        return failed

    def _ask(self, stop: threading.Event, cluster: str, consumer: str) -> str | None:
        """Read one group, if the pass goes on and Burrow still answers. Return an error that a retry may fix."""
        if self._unanswered >= _GIVES_UP_AFTER or stop.wait(_AT_ONCE / _PER_SECOND):
            return None
        asked_ms = self._clock.boot_ms()
        try:
            event = self._burrow.lag(cluster, consumer)
            taken = self._intake.accept(event, age_ms=self._clock.boot_ms() - asked_ms)
        except (NotFound, Unaddressable) as error:  # removed since the list was made, or no URL can name the group
            self._counted("not_found" if isinstance(error, NotFound) else "unaddressable")
            return None
        except Exception as error:  # noqa: BLE001 - one group must not end the pass for other groups
            self._counted("unavailable" if isinstance(error, Unavailable) else "failed")
            self._unanswered += isinstance(error, Unavailable)
            return str(error) or repr(error)
        newest = burrow_cut_off.newest_read_ms(event)
        ends = [each.log_end_offset for each in event.partitions if each.log_end_offset is not None]
        self._ends[_LogEnds(cluster, consumer, len(ends), is_of_burrow=newest > 0)] = sum(ends)
        if newest:
            self._newest[cluster] = max(newest, self._newest.get(cluster, 0))
        self._unanswered = 0
        self._counted("taken" if taken else "refused")
        return None

    def _log_deleted(self, cluster: str, listed: set[str]) -> None:
        """Store a deletion of each group that `MissingGroups` finds. Any source's verdict shows that a group exists."""
        live = (each for each in self._log.live() if each.key.cluster == cluster)
        absent = (each for each in live if each.key.consumer not in listed)
        judged = {one.key.consumer: max(one.log_time_ms, (one.summary.second or one).log_time_ms) for one in absent}
        for group in self._missing[cluster].see(listed, judged, self._clock.boot_ms()):
            gone, wall_ms = Status.NOTFOUND.name, self._clock.wall_ms()
            event = LagEvent(cluster, group, gone, total_lag=None, observed_at_ms=wall_ms, source=Source.REST)
            self._counted("deleted" if self._intake.accept(event) else "refused")

    def _counted(self, outcome: str) -> None:
        self._log.count(telemetry.RESYNC_GROUPS, outcome=outcome)
