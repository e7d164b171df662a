"""`watch` inside the service: from its settings, into its log."""

import threading
from collections.abc import Iterator

from karrot.clock import Clock
from karrot.eventlog.base import EventLog
from karrot.intake import Intake
from karrot.settings import Settings
from karrot.watch.connecting import NotConnected, connect
from karrot.watch.keep import NoteKeeper
from karrot.watch.sinks import IntakeSink
from karrot.watch.watcher import Watcher, run

__all__ = ["problems", "serve_watch"]


def problems(settings: Settings) -> Iterator[str]:
    """Why no client can be made of the settings; nothing is asked of Kafka."""
    if settings.watch_bootstrap:
        try:
            connect(settings.watch_bootstrap, settings.watch_properties)
        except NotConnected as error:
            yield f"KARROT_WATCH_BOOTSTRAP: {error}"


def serve_watch(settings: Settings, log: EventLog, intake: Intake, clock: Clock, stop: threading.Event) -> None:
    """Watch until told to stop; returns at once where there is nothing to watch. For the worker that leads."""
    if not settings.watch_bootstrap:
        return
    name = settings.watch_cluster or ""
    watcher = Watcher(
        name=name,
        cluster=connect(settings.watch_bootstrap, settings.watch_properties),
        clock=clock,
        sink=IntakeSink(name, intake, log, good_for_ms=settings.stale_after * 1000),
        keeper=NoteKeeper(log, name),
        interval=settings.watch_interval,
        exclude=settings.watch_exclude,
        count=log.count,
    )
    run(watcher, stop)
