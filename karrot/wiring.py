"""Builds the service from its settings and runs it. No other module knows all parts.

To save memory in each worker, parts that are off by default are imported only if they are on. These parts are
CloudWatch, the pipeline's tables, resync from Burrow and the watch of Kafka.
"""
# ruff: noqa: PLC0415 (see the docstring)

import contextlib
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from karrot import __version__, logs, render
from karrot.clock import Clock, SystemClock
from karrot.delivery import Delivery
from karrot.distribution_conflict import entry_point
from karrot.eventlog.base import EventLog, LogUnavailableError
from karrot.eventlog.memory import MemoryEventLog
from karrot.eventlog.sqlite import SqliteEventLog, datadir
from karrot.intake import Intake
from karrot.known_problems import RESYNC, WATCH
from karrot.reporters.base import GROUP, Context, PullReporter, Reporter
from karrot.reporters.prometheus import render as render_metrics
from karrot.reporters.prometheus.group_metrics import MetricNameQuery, promql_queries
from karrot.server.gunicorn import Server
from karrot.server.request_serving import Patience
from karrot.settings.loading import Loaded, SettingsError, checked
from karrot.settings.options import Settings, effective, needs_restart
from karrot.settings.sources import PREFIX
from karrot.settings.types import Secret
from karrot.web import Credentials, WebContext, create_app
from karrot.web.context import AskPast
from karrot.web.webhook import Webhook

if TYPE_CHECKING:
    from karrot.eventlog.sqlite.store import ChosenLimits
    from karrot.history import History, HourlyHistory

_BOOT_FAILED = 3
"""If a worker ends with this exit code, gunicorn's parent does not start another worker."""

_log = structlog.get_logger(__name__)


def serve(load: Callable[[], Loaded]) -> int:
    """Run the service until a signal stops it, and return the exit code.

    ``load`` reads the settings, at the start and at every SIGHUP. Raises `SettingsError`. Raises `LogUnavailableError`
    if the service cannot use the data directory, and `OSError` if it cannot use the port.
    """
    loaded = load()
    clock = SystemClock()
    try_out(loaded.settings)
    logs.configure(loaded.settings.log, sys.stdout)
    _tell(loaded)
    with _held_directory(loaded.settings, clock):
        _refuse_taken_port(loaded.settings)  # after the lock, so that workers of a dead parent have left the port
        Server(Plan(loaded.settings, load, clock)).run()
    return 0


def try_out(settings: Settings) -> None:
    """Check whether a worker could start with these settings. Raises `SettingsError` if a worker could not."""
    problems = [*_wrong_certificate(settings)]
    if settings.watch_bootstrap:
        from karrot.watch.cluster_interface import NotConnected, connect

        try:
            connect(settings.watch_bootstrap, settings.watch_client)  # this sends no request to Kafka yet
        except NotConnected as error:
            problems.append(f"KARROT_WATCH_BOOTSTRAP: {error}")
    clock = SystemClock()
    log = MemoryEventLog(clock)
    for name in settings.reporters:
        try:
            reporter = _open_reporter(settings, name, clock, log)
        except Exception as error:  # noqa: BLE001 - code of other packages: show its error to the user
            problems.append(f"KARROT_REPORTERS: {name} cannot be built: {type(error).__name__}: {error}")
        else:
            if not isinstance(reporter, PullReporter):
                reporter.close()
    log.close()  # SQLite must not be open during a fork
    if problems:
        raise SettingsError(problems)


def cloudwatch_bill(settings: Settings) -> tuple[str, ...]:
    """Sentences about the monthly cost of CloudWatch for the groups in the event log. Empty if CloudWatch is off."""
    if "cloudwatch" not in settings.reporters:
        return ()
    from karrot.reporters.cloudwatch.costs import bill
    from karrot.reporters.cloudwatch.options import Options

    options = Options.of(settings)
    groups = [] if settings.event_log == "memory" else datadir.known_groups(settings.data_dir)
    return bill(groups, options)


class Plan:
    """Holds the current settings in the parent process, and builds a worker's service from them."""

    def __init__(self, settings: Settings, load: Callable[[], Loaded], clock: Clock) -> None:
        self._settings = settings
        self._load = load
        self._clock = clock

    def options(self) -> Mapping[str, Any]:
        """The settings of gunicorn."""
        settings = self._settings
        return {
            "bind": str(settings.bind),
            "workers": settings.workers,
            "threads": settings.threads,
            "certfile": settings.tls_cert and str(settings.tls_cert),
            "keyfile": settings.tls_key and str(settings.tls_key),
        }

    def reload(self) -> None:
        """Load the settings again after SIGHUP. Keep the old ones if the new ones are wrong."""
        try:
            loaded = self._load()
            fixed = needs_restart(self._settings, loaded.settings)
            attributes = [name.removeprefix(PREFIX).lower() for name in fixed]
            kept = {name: getattr(self._settings, name) for name in attributes}
            settings = checked(replace(loaded.settings, **kept))
            try_out(settings)
        except SettingsError as error:
            for problem in error.problems:
                _log.error("the new settings are refused, the old ones stay", problem=problem)
            return
        if fixed:
            _log.warning("some settings take effect with a restart, not a reload", settings=", ".join(fixed))
        self._settings = settings
        logs.configure(self._settings.log, sys.stdout)
        _tell(loaded)

    def build(self) -> "Service":
        """Build the service of one worker. A failure is logged and ends the worker and the start of the service."""
        try:
            return Service(self._settings, self._clock)
        except LogUnavailableError as error:
            _log.error("this worker cannot start", reason=str(error))
            sys.exit(_BOOT_FAILED)


class Service:
    """Everything that one worker runs. It is built after the fork."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._log = open_log(settings, clock)
        reporters = open_reporters(settings, self._log, clock)
        pull = {name: each for name, each in reporters.items() if isinstance(each, PullReporter)}
        fed = {name: each for name, each in reporters.items() if not isinstance(each, PullReporter)}
        self._web_context = _web_context(settings, self._log, clock, pull)
        duties = [
            partial(duty, settings, self._log, self._web_context.intake, clock) for duty in _duties(settings).values()
        ]
        self._delivery = Delivery(self._log, fed, clock, alongside=duties)
        self.wsgi: Callable[..., Any] = create_app(self._web_context)
        self.events = Webhook(self._web_context)
        self.patience = Patience(settings.header_timeout, settings.body_timeout)
        self._delivery.start()

    def close(self) -> None:
        """Stop delivery, then close the event log."""
        self._delivery.stop()
        self._log.close()


def _duties(settings: Settings) -> Mapping[str, Callable[[Settings, EventLog, Intake, Clock, threading.Event], None]]:
    """The leader's duties in addition to delivery, by the names of their states in the event log."""
    duties = {}
    if settings.burrow_url:
        duties[RESYNC] = _resync
    if settings.watch_bootstrap:
        from karrot.watch.poll_and_judge import serve_watch

        duties[WATCH] = serve_watch
    return duties


def _resync(settings: Settings, log: EventLog, intake: Intake, clock: Clock, stop: threading.Event) -> None:
    """Read all groups from Burrow at regular intervals, until ``stop`` is set."""
    from karrot.burrow.client import Burrow
    from karrot.resync import Resync

    burrow = Burrow(settings.burrow_url or "")
    Resync(burrow, intake, log, clock, interval_s=settings.resync_interval).run(stop)


def open_log(settings: Settings, clock: Clock) -> EventLog:
    """Open the event log that the settings name. The caller must have prepared its directory."""
    bounds: ChosenLimits = {
        "stale_after_ms": settings.stale_after * 1000,
        "retention_ms": settings.retention * 1000,
        "max_bytes": settings.max_log_bytes,
        "max_consumers": settings.max_consumers,
        "log_end_max_bytes": settings.log_end_max_bytes,
    }
    if settings.event_log == "memory":
        return MemoryEventLog(clock, **bounds)
    return SqliteEventLog(settings.data_dir, clock, on_replaced=_tell_replaced, **bounds)


def open_reporters(settings: Settings, log: EventLog, clock: Clock) -> Mapping[str, Reporter]:
    """Build the reporters that are on, by name. The package that registered a reporter builds it."""
    return {name: _open_reporter(settings, name, clock, log) for name in settings.reporters}


def _open_reporter(settings: Settings, name: str, clock: Clock, log: EventLog) -> Reporter:
    context = Context(
        name=name,
        settings=reporter_settings(settings, name),
        count=log.count,
        clock=clock,
        log_time_ms=log.log_time_ms,
        recall=partial(log.recall, name),
        remember=partial(log.remember, name),
    )
    reporter: Reporter = entry_point(GROUP, name).load()(context)
    return reporter


def reporter_settings(settings: Settings, name: str) -> Mapping[str, str]:
    """A reporter's own settings. Some reporters get settings of the service too."""
    shared: dict[str, str] = {}
    if name == "prometheus":
        shared = {
            "partition_metrics": str(settings.partition_metrics),
            "topic_metrics": str(settings.topic_metrics),
            "exclude_consumers": settings.exclude_consumers.pattern if settings.exclude_consumers else "",
            "expected_clusters": ",".join(settings.expected_clusters),
            "reporters": ",".join(settings.reporters),
            "watch": str(bool(settings.watch_bootstrap)),
        }
    elif name == "cloudwatch":
        shared = {"iam_role": settings.iam_role or "", "compat": settings.compat or ""}
    elif name == "archive":
        shared = {"dir": settings.archive_dir or str(settings.data_dir / "archive")}
    return {**settings.reporter_settings(name), **shared}


def _web_context(settings: Settings, log: EventLog, clock: Clock, pull: Mapping[str, PullReporter]) -> WebContext:
    collectors = {name: reporter.collector(log) for name, reporter in pull.items()}
    return WebContext(
        intake=Intake(log, clock, pull_reporters=tuple(pull)),
        log=log,
        clock=clock,
        render_metrics=partial(render_metrics, collectors, count=log.count),
        effective_settings=partial(effective, settings),
        reporters=settings.reporters,
        duties=tuple(_duties(settings)),
        burrow_config=render.burrow_config,
        templates=render.templates_dir(),
        runbooks=render.runbooks_dir(),
        version=__version__,
        credentials=Credentials(
            username=settings.burrow_username,
            password=_revealed(settings.burrow_password),
            password_previous=_revealed(settings.burrow_password_previous),
            token=_revealed(settings.burrow_token),
            token_previous=_revealed(settings.burrow_token_previous),
        ),
        api_token=_revealed(settings.api_token),
        metrics_auth=settings.metrics_auth,
        external_url=settings.external_url,
        max_body=settings.max_body,
        body_timeout=settings.body_timeout,
        stale_after_ms=settings.stale_after * 1000,
        expected_clusters=settings.expected_clusters,
        max_consumers=settings.max_consumers,
        queries=partial(_queries, settings),
        past=open_past(settings, clock),
    )


def _queries(settings: Settings, cluster: str, consumer: str) -> list[MetricNameQuery]:
    """Queries for a group's metrics in Prometheus, and also in CloudWatch if Karrot sends them there."""
    found = promql_queries(cluster, consumer)
    if "cloudwatch" in settings.reporters:
        from karrot.render.cloudwatch_metric_names import CloudWatchNames, cloudwatch_queries
        from karrot.reporters.cloudwatch.options import Options

        options = Options.of(settings)
        names = CloudWatchNames(options.namespace, options.metrics, options.layouts)
        found += cloudwatch_queries(cluster, consumer, names)
    return found


def open_past(settings: Settings, clock: Clock) -> AskPast:
    """Return a function that queries the pipeline's tables, if there are any. Any thread may call the function."""
    tables = settings.tables_dir or settings.data_dir / "tables"
    lock = threading.Lock()

    @cache
    def history() -> "History":
        from karrot.history import History

        return History(tables, threads=1, memory="256MB")

    def ask(cluster: str, consumer: str) -> "HourlyHistory | str | None":
        if not tables.is_dir():
            return None
        from karrot.history import HistoryError

        try:
            with lock:  # `cache` does not lock: two threads would each open a DuckDB
                reader = history()
            return reader.hourly(cluster, consumer, until=datetime.fromtimestamp(clock.wall_ms() / 1000, UTC))
        except HistoryError as error:
            return str(error)

    return ask


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


@contextlib.contextmanager
def _held_directory(settings: Settings, clock: Clock) -> Iterator[None]:
    """Lock and prepare the data directory. For an event log in memory, do nothing."""
    if settings.event_log == "memory":
        yield
        return
    lock = datadir.hold(settings.data_dir)
    try:
        replaced = datadir.prepare(settings.data_dir, clock, max_bytes=settings.max_log_bytes)
        if replaced is not None:
            _tell_replaced(*replaced)
        yield
    finally:
        lock.close()


def _wrong_certificate(settings: Settings) -> Iterator[str]:
    if settings.tls_cert is None:
        return
    try:
        # Without a password here, OpenSSL would ask for one on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except (OSError, ValueError) as error:
        yield f"KARROT_TLS_CERT and KARROT_TLS_KEY are not a certificate and its private key: {error}"


def _refuse_taken_port(settings: Settings) -> None:
    host, port = settings.bind
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(
                f"cannot listen on {settings.bind}: {error.strerror}; choose another address with --bind HOST:PORT "
                "or KARROT_BIND"
            ) from error


def _tell(loaded: Loaded) -> None:
    for warning in loaded.warnings:
        _log.warning("doubtful setting", warning=warning)
    defaults = effective(Settings())
    for name, value in effective(loaded.settings).items():
        if value != defaults.get(name):
            _log.info("setting", name=name, value=value)


def _tell_replaced(path: Path, reason: str) -> None:
    _log.error("the event log was damaged and set aside; a new one begins", path=str(path), reason=reason)
