"""Settings to a running service: the one module that knows everybody."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import structlog

from karrot import __version__, logs, render
from karrot.burrow.payload import parse_stored
from karrot.clock import Clock, SystemClock
from karrot.delivery import Delivery
from karrot.eventlog import datadir
from karrot.eventlog.base import EventLog, LogUnavailableError
from karrot.eventlog.memory import MemoryEventLog
from karrot.eventlog.sqlite import SqliteEventLog
from karrot.intake import Intake
from karrot.reporters.base import GROUP, Context, PullReporter, PushReporter, Reporter
from karrot.reporters.prometheus import render as render_metrics
from karrot.settings import Loaded, Settings, SettingsError, effective, needs_restart
from karrot.sources import PREFIX
from karrot.values import Secret
from karrot.web import Credentials, Site, create_app
from karrot.web.admission import worth_reading
from karrot.web.server import Server
from karrot.web.worker import Patience

__all__ = ["Plan", "Service", "open_log", "open_reporters", "serve"]

_THREAD_WAIT_S = 2.0
_BOOT_FAILED = 3
"""What tells gunicorn's parent not to try again."""

_log = structlog.get_logger(__name__)


def serve(load: Callable[[], Loaded]) -> int:
    """Run the service until it is told to stop; return the exit code.

    ``load`` reads the settings, now and at every SIGHUP. Raises `SettingsError`, and `LogUnavailableError` if the
    data directory cannot be used.
    """
    loaded = load()
    logs.configure(loaded.settings.log, sys.stdout)
    _tell(loaded)
    clock = SystemClock()
    with _held_directory(loaded.settings, clock):
        Server(Plan(loaded.settings, load, clock)).run()
    return 0


class ReporterError(Exception):
    """A reporter that cannot be built; the message names it and says why."""


class Plan:
    """The parent's side: the settings in force, and how a worker builds the service from them."""

    def __init__(self, settings: Settings, load: Callable[[], Loaded], clock: Clock) -> None:
        self._settings = settings
        self._load = load
        self._clock = clock

    def options(self) -> Mapping[str, Any]:
        """What gunicorn is told."""
        settings = self._settings
        return {
            "bind": str(settings.bind),
            "workers": settings.workers,
            "threads": settings.threads,
            "certfile": settings.tls_cert and str(settings.tls_cert),
            "keyfile": settings.tls_key and str(settings.tls_key),
        }

    def reload(self) -> None:
        """SIGHUP: the new settings, or the old ones where the new are wrong."""
        try:
            loaded = self._load()
        except SettingsError as error:
            for problem in error.problems:
                _log.error("the new settings are refused, the old ones stay", problem=problem)
            return
        if fixed := needs_restart(self._settings, loaded.settings):
            _log.warning("some settings take effect with a restart, not a reload", settings=", ".join(fixed))
        kept = {name: getattr(self._settings, name) for name in map(_attribute, fixed)}
        self._settings = replace(loaded.settings, **kept)
        logs.configure(self._settings.log, sys.stdout)
        _tell(loaded)

    def build(self) -> "Service":
        """The service of one worker. Ends the worker, and with it the start, with a sentence if that fails."""
        try:
            return Service(self._settings, self._clock)
        except (LogUnavailableError, ReporterError) as error:
            _log.error("this worker cannot start", reason=str(error))
            sys.exit(_BOOT_FAILED)


class Service:
    """Everything one worker runs. Built after the fork."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._log = open_log(settings, clock)
        reporters = open_reporters(settings, self._log)
        pull = {name: each for name, each in reporters.items() if isinstance(each, PullReporter)}
        push = {name: each for name, each in reporters.items() if isinstance(each, PushReporter)}
        self._delivery = Delivery(self._log, push, clock)
        self._site = _site(settings, self._log, clock, pull)
        self.wsgi: Callable[..., Any] = create_app(self._site)
        self.patience = Patience(
            settings.header_timeout, settings.body_timeout, _THREAD_WAIT_S, partial(worth_reading, self._site)
        )
        self._delivery.start()

    def close(self) -> None:
        """Stop delivering, then release the log."""
        self._delivery.stop()
        self._log.close()


def open_log(settings: Settings, clock: Clock) -> EventLog:
    """The event log that the settings name. A directory has to be prepared before."""
    bounds = {
        "stale_after_ms": settings.stale_after * 1000,
        "retention_ms": settings.retention * 1000,
        "max_bytes": settings.max_log_bytes,
        "max_consumers": settings.max_consumers,
    }
    if settings.event_log == "memory":
        return MemoryEventLog(clock, **bounds)
    return SqliteEventLog(settings.data_dir, clock, decode=parse_stored, on_replaced=_tell_replaced, **bounds)


def open_reporters(settings: Settings, log: EventLog) -> Mapping[str, Reporter]:
    """The reporters that are on, by name, each built by whoever registered it. Raises `ReporterError`."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    return {
        name: _built(points[name], Context(name, _reporter_settings(settings, name), log.count))
        for name in settings.reporters
    }


def _built(point: EntryPoint, context: Context) -> Reporter:
    try:
        reporter: Reporter = point.load()(context)
    except Exception as error:
        raise ReporterError(f"the reporter {context.name} ({point.value}): {type(error).__name__}: {error}") from error
    return reporter


def _reporter_settings(settings: Settings, name: str) -> Mapping[str, str]:
    """A reporter's own settings; ``prometheus`` shares some of the service's."""
    own = settings.reporter_settings(name)
    if name != "prometheus":
        return own
    return {
        **own,
        "partition_metrics": str(settings.partition_metrics),
        "topic_metrics": str(settings.topic_metrics),
        "exclude_consumers": settings.exclude_consumers.pattern if settings.exclude_consumers else "",
        "expected_clusters": ",".join(settings.expected_clusters),
        "reporters": ",".join(settings.reporters),
    }


def _site(settings: Settings, log: EventLog, clock: Clock, pull: Mapping[str, PullReporter]) -> Site:
    collectors = {name: reporter.collector(log) for name, reporter in pull.items()}
    return Site(
        intake=Intake(log, clock, pull_reporters=tuple(pull)),
        log=log,
        clock=clock,
        render_metrics=partial(render_metrics, collectors, count=log.count),
        effective_settings=partial(effective, settings),
        reporters=settings.reporters,
        burrow_config=render.burrow_config,
        templates=render.templates_dir(),
        version=__version__,
        credentials=_credentials(settings),
        api_token=_revealed(settings.api_token),
        metrics_auth=settings.metrics_auth,
        external_url=settings.external_url,
        max_body=settings.max_body,
        body_timeout=settings.body_timeout,
        stale_after_ms=settings.stale_after * 1000,
    )


def _credentials(settings: Settings) -> Credentials:
    return Credentials(
        username=settings.burrow_username,
        password=_revealed(settings.burrow_password),
        password_previous=_revealed(settings.burrow_password_previous),
        token=_revealed(settings.burrow_token),
        token_previous=_revealed(settings.burrow_token_previous),
    )


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


@contextlib.contextmanager
def _held_directory(settings: Settings, clock: Clock) -> Iterator[None]:
    """The data directory, held and prepared; nothing for a log in memory."""
    if settings.event_log == "memory":
        yield
        return
    lock = datadir.hold(settings.data_dir)
    try:
        prepared = datadir.prepare(settings.data_dir, clock, max_bytes=settings.max_log_bytes)
        if prepared.replaced is not None:
            _tell_replaced(prepared.replaced, prepared.reason or "")
        yield
    finally:
        lock.close()


def _attribute(setting: str) -> str:
    return setting.removeprefix(PREFIX).lower()


def _tell(loaded: Loaded) -> None:
    for warning in loaded.warnings:
        _log.warning("doubtful setting", warning=warning)
    for name, value in effective(loaded.settings).items():
        _log.info("setting", name=name, value=value)


def _tell_replaced(path: Path, reason: str) -> None:
    _log.error("the event log was damaged and set aside; a new one begins", path=str(path), reason=reason)
