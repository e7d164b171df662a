"""Runs `watch` inside the service: reads its settings and writes to its event log."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from karrot.clock import Clock
from karrot.eventlog.base import EventLog, LogUnavailableError, OverloadedError, ReporterNotes, ReporterState
from karrot.intake import Intake
from karrot.known_problems import WATCH
from karrot.settings.options import Settings
from karrot.watch.cluster_interface import NotConnected, connect
from karrot.watch.outputs import IntakeSink
from karrot.watch.persistence import NoteKeeper
from karrot.watch.watcher import Watcher, run

_LONGEST_ERROR = 500


def save_poll_state(log: ReporterNotes, clock: Clock, trouble: str | None) -> None:
    """Save in the log, if it takes it, how the last poll went, for those who ask whether all is well."""
    with suppress(LogUnavailableError, OverloadedError):
        kept = {state.name: state for state in log.reporters()}.get(WATCH, ReporterState(WATCH, None))
        now_ms = clock.wall_ms()
        log.save_reporter(
            replace(kept, state="ok", last_success_ms=now_ms)
            if trouble is None
            else replace(kept, state="failing", last_error=trouble[:_LONGEST_ERROR], last_error_ms=now_ms)
        )


def problems(settings: Settings) -> Iterator[str]:
    """Why no client can be made of the settings; nothing is asked of Kafka."""
    if settings.watch_bootstrap:
        try:
            connect(settings.watch_bootstrap, settings.watch_properties)
        except NotConnected as error:
            yield f"KARROT_WATCH_BOOTSTRAP: {error}"


def serve_watch(settings: Settings, log: EventLog, intake: Intake, clock: Clock, stop: threading.Event) -> None:
    """Watch until told to stop. For the worker that leads."""
    name = settings.watch_cluster or ""
    sink = IntakeSink(name, intake, log, good_for_ms=settings.stale_after * 1000)
    sink.begin()
    watcher = Watcher(
        name=name,
        cluster=connect(settings.watch_bootstrap, settings.watch_properties),
        clock=clock,
        sink=sink,
        keeper=NoteKeeper(log, name),
        interval=settings.watch_interval,
        exclude=settings.watch_exclude,
        count=log.count,
        report=partial(save_poll_state, log, clock),
    )
    run(watcher, stop)
