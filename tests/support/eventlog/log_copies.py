"""Fills event logs, copies them between two places, and reads everything that a copy must keep."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg

from karrot.burrow.payload import to_wire
from karrot.clock import Clock
from karrot.event import GroupKey, Source
from karrot.eventlog import watched_groups
from karrot.eventlog.base import Cursor, EventLog, LogUnavailableError, Reject, ReporterState, StoredEvent, groups
from karrot.eventlog.copied_tables import CopySource, CopyTarget, LogHead
from karrot.eventlog.log_copy import CopyProgress, CopyResult, copy_log, open_source, open_target
from karrot.eventlog.opening import database_of_settings, prepared_log
from karrot.eventlog.rows import Row
from karrot.eventlog.sql_log import SqlEventLog
from karrot.eventlog.sqlite.datadir import UNFINISHED_COPY
from karrot.settings.options import Settings
from support.burrow.lag_events import make_event, make_partition
from support.eventlog.appended_events import append_event
from support.manual_clock import ManualClock

STALE_MS = 300_000
RETENTION_MS = 3_600_000
NOTES = (("cloudwatch", "inside"), ("cloudwatch", "report"), ("watch", "groups"))
Everything = dict[str, Any]


def limits(**place: Any) -> Settings:
    """Settings with the limits above, and a place of the event log."""
    return Settings(stale_after=STALE_MS // 1000, retention=RETENTION_MS // 1000, **place)


@contextmanager
def serving(settings: Settings, clock: Clock) -> Iterator[EventLog]:
    """Open a log as a service does. A damaged log fails the test."""

    def fail(path: Path, reason: str) -> None:
        raise AssertionError(f"{path}: {reason}")

    with prepared_log(settings, clock, fail) as open_log, closing(open_log(settings)) as log:
        yield log


def copy(source: Settings, target: Settings, clock: Clock, *, in_advance: bool = False, page: int = 500) -> CopyResult:
    """Copy a log as the command does, with ``page`` events at once."""
    with (
        closing(open_source(source, clock, in_advance=in_advance)) as opened,
        closing(open_target(target, clock)) as written,
    ):
        return copy_log(_SmallPages(opened, page), written, in_advance=in_advance, tell=_check)


def fill(log: EventLog, clock: ManualClock) -> None:
    """Store every kind of data, after events that were deleted by their age."""
    append_event(log, consumer="long ago", incident_id="i0")
    clock.advance(RETENTION_MS + 1)
    log.expire()
    log.prune()
    append_event(log, consumer="silent", status_text="ERR")
    clock.advance(STALE_MS + 1)
    log.expire()
    for step in range(8):
        for name in ("orders", "grüppe-🙂 \x00/?#", ""):
            ends = tuple(make_partition(partition=n, current_lag=step * 7 + n) for n in range(3))
            append_event(log, consumer=name, total_lag=step, partitions=ends, incident_id=f"{name}-{step // 3}")
        clock.advance(20_000)
    append_event(log, consumer="orders", status_text="OK", incident_id="orders-2")
    append_event(log, consumer="deleted", status_text="ERR", incident_id="d1")
    append_event(log, consumer="deleted", status_text="NOTFOUND", incident_id=None)
    append_event(log, cluster="kafka-only", source=Source.KAFKA)
    append_event(log, cluster="zürich", age_ms=2_000, source=Source.REST, total_lag=2**64 - 1)
    append_event(log, consumer="posted with a key", key="a key of one post")
    log.count("karrot_x_total", 2.5, code="ä", other="b")
    log.count("karrot_x_total", code="")
    for n in range(7):
        log.reject(Reject(n, "invalid_json", f"nö \x00 {n}", Source.WEBHOOK, bytes([0xFF, n])))
    log.flush()
    log.save_reporter(ReporterState("stdout", Cursor(log.log_id, 9), "failing", "boom ☃", 5, 4))
    log.save_reporter(ReporterState("cloudwatch", None))
    log.save_reporter(ReporterState("of a log that was replaced", Cursor("another", 7), "ok"))
    log.remember("cloudwatch", "inside", b"\x00\xff")
    log.remember("cloudwatch", "report", b"")
    health = watched_groups.GroupHealth("orders", "Stable", 3, 1, 7, None, 12)
    watched_groups.keep(log, watched_groups.WatchedCluster("prod-eu", 5, 0.25, log.log_time_ms(), 60_000, (health,)))


def everything(log: EventLog) -> Everything:
    """The answers of every method that reads. The bytes of a log depend on its database, and are left out.

    When each cluster was heard is in log time: the time of the wall clock also depends on PostgreSQL's real clock.
    """
    assert isinstance(log, SqlEventLog)
    events = [event for page in _pages(log) for event in page]
    decoded = [event for event in events if isinstance(event, StoredEvent)]
    keys = sorted({GroupKey(each.event.cluster, each.event.consumer) for each in decoded})
    size = log.size()
    return {
        "log id": log.log_id,
        "size": (size.events, size.groups, size.first_seq, size.last_seq),
        "events": events,
        "events by number": [log.event(seq) for seq in range(size.last_seq + 2)],
        "groups": list(groups(log)),
        "live": list(log.live()),
        "changed": list(log.changed(0)),
        "group": {key: log.group(key) for key in keys},
        "recent": {key: list(log.recent(key)) for key in keys},
        "bodies": {key: list(log.bodies(key)) for key in keys},
        "heard": dict(log._heard()),
        "counters": list(log.counters()),
        "rejects": list(log.rejects(2_000)),
        "reporters": list(log.reporters()),
        "cursors": {state.name: log.cursor(state.name) for state in log.reporters()},
        "notes": {note: log.recall(*note) for note in NOTES},
        "watch": watched_groups.read(log),
    }


def head(place: Settings, clock: Clock) -> LogHead:
    """What a log knows about itself, without its time."""
    with closing(open_source(place, clock, in_advance=True)) as source:
        return source.head()._replace(log_ms=0, committed_ms=0)


def continue_both(logs: Sequence[EventLog], clock: ManualClock) -> list[Everything]:
    """Let each log go on in the same way, and return what each holds afterwards."""
    for log in logs:
        for number in range(2):
            event = make_event(consumer="orders", incident_id="orders-2", total_lag=number)
            log.append(event, to_wire(event))  # an incident that was closed before: it is not counted again
            append_event(log, consumer="orders", incident_id="new")
        append_event(log, consumer="silent", incident_id="new")
        append_event(log, consumer="posted with a key", key="a key of one post")  # it was posted before the copy
        log.reject(Reject(99, "invalid_json", "later", Source.WEBHOOK, b""))
        log.flush()
        log.save_reporter(ReporterState("stdout", Cursor(log.log_id, 20), "ok"))
    clock.advance(RETENTION_MS // 2)
    for log in logs:
        log.expire()
    return [_without_times(everything(log)) for log in logs]


def newest_event(target: Settings) -> int:
    """The newest event that a target has, finished or not; 0 if it has none."""
    try:
        if target.is_on_postgresql:
            with closing(database_of_settings(target).connect()) as connection:
                return int(connection.execute("SELECT last_seq FROM log").fetchall()[0][0])
        file = apsw.Connection(str(target.data_dir / UNFINISHED_COPY), flags=apsw.SQLITE_OPEN_READWRITE)
        with closing(file):
            return int(file.execute("SELECT ifnull(max(seq), 0) FROM events").get)
    except (apsw.Error, psycopg.Error, LogUnavailableError):
        return 0


def copy_and_kill_self(source: Settings, target: Settings, clock: Clock, kill: tuple[str, int, str]) -> None:
    """Copy, 5 events at once, and kill this process at a method, at a call with a number, ``before`` or ``after`` it.

    The method is one of the target, or ``rows``: a portion of rows that the target asks for. ``unlink`` and ``replace``
    are methods of `Path`. The function is here because a spawned process cannot import a test module.
    """
    method, number, when = kill
    killer = _Killer(method, number, when)
    if hasattr(Path, method):
        setattr(Path, method, lambda *_, **_options: killer.meet(method))
    with (
        closing(open_source(source, clock, in_advance=False)) as opened,
        closing(open_target(target, clock)) as written,
    ):
        copy_log(_SmallPages(opened, 5, killer), killer.around(written), in_advance=False, tell=_check)


def _check(progress: CopyProgress) -> None:
    assert 0 < progress.copied <= progress.total


def _pages(log: EventLog) -> Iterator[Sequence[Any]]:
    after = 0
    while page := log.read(after):
        yield page
        after = page[-1].seq


def _without_times(found: Everything) -> Everything:
    """What two logs have in common that were used one after the other: not the times of arrival."""
    states = [(each.key, each.seq, each.summary.total_lag, each.incident.open_id, each.incident.total)
              for each in found["groups"]]  # fmt: skip
    return {
        "size": found["size"],
        "groups": states,
        "counters": found["counters"],
        "rejects": found["rejects"],
        "cursors": found["cursors"],
        "ages": [None if each.age is None else each.age.kind for each in found["events"]],
    }


class _Killer:
    def __init__(self, method: str, number: int, when: str) -> None:
        self._method = method
        self._left = number
        self._when = when

    def around(self, target: CopyTarget) -> Any:
        killer = self

        class Target:
            def __getattr__(self, name: str) -> Any:
                def call(*arguments: Any) -> Any:
                    killer.meet(f"before {name}")
                    result = getattr(target, name)(*arguments)
                    killer.meet(f"after {name}")
                    return result

                return call

        return Target()

    def meet(self, name: str) -> None:
        if name in {self._method, f"{self._when} {self._method}"}:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class _SmallPages:
    def __init__(self, source: CopySource, page: int, killer: _Killer | None = None) -> None:
        self._source = source
        self._page = page
        self._killer = killer

    def events(self, after: int, limit: int = 500) -> Sequence[Row]:
        return self._source.events(after, min(limit, self._page))

    def rows(self, table: Any) -> Iterator[Sequence[Row]]:
        for portion in self._source.rows(table):
            if self._killer is not None:
                self._killer.meet("rows")
            yield portion

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)
