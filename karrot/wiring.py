"""Builds the service from its settings and runs it. No other module knows all parts.

To save memory in each worker, parts that are off by default are imported only if they are on. These parts are
CloudWatch, resync from Burrow and the watch of Kafka.
"""
# ruff: noqa: PLC0415 (see the docstring)

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from karrot import __version__, logs, mutes
from karrot.burrow_cut_off import cut_off
from karrot.clock import Clock, SystemClock
from karrot.delivery import Delivery
from karrot.diagnosis.explanations import explain
from karrot.diagnosis.known_facts import gather
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.sqlite import SqliteEventLog, data_directory
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.intake import Intake
from karrot.reload_changed_files import Certificate, NewestFromFiles
from karrot.reporters import prometheus
from karrot.reporters.base import GROUP, Context, PullReporter, PushReporter, Reporter
from karrot.reporters.prometheus.group_metrics import MetricNameQuery, promql_queries
from karrot.runbooks_and_remedies import RESYNC, WATCH
from karrot.server.start_gunicorn import LeaderProcess, Server, refuse_taken_port
from karrot.settings.loading import Loaded, SettingsError, checked, read_secrets_again
from karrot.settings.options import Settings, effective, needs_restart
from karrot.settings.sources import DEFAULT
from karrot.settings.types import Secret
from karrot.web import Credentials, WebContext, create_app
from karrot.web.pages.last_weeks import AskLastWeeks, LastWeeks

if TYPE_CHECKING:
    from karrot.eventlog.postgres.connections import Database

T = TypeVar("T")
OpenLog = Callable[[Settings], EventLog]
"""Opens the prepared event log with the limits in the settings. Call this function after the fork."""


@contextlib.contextmanager
def prepared_log(settings: Settings, clock: Clock) -> Iterator[OpenLog]:
    """Check and migrate the event log, and hold it until the end of the block. Raises `LogUnavailableError`."""
    if settings.event_log == "memory":
        yield lambda chosen: MemoryEventLog(clock, **_limits(chosen))
    elif settings.is_on_postgresql:
        database = database_of_settings(settings)
        from karrot.eventlog.postgres import PostgresEventLog
        from karrot.eventlog.postgres.schema import prepare

        opened = _in_thread(prepare, database, clock)
        yield lambda chosen: PostgresEventLog(
            database_of_settings(chosen), opened, clock, name=socket.gethostname(), **_limits(chosen)
        )
    else:
        with contextlib.closing(data_directory.hold(settings.data_dir)):
            failure = _in_thread(data_directory.prepare, settings.data_dir, clock, max_bytes=settings.max_log_bytes)
            yield lambda chosen: SqliteEventLog(settings.data_dir, clock, failure=failure, **_limits(chosen))


def _in_thread(prepare: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call ``prepare`` while the main thread can handle SIGTERM: Python handles no signal during a call into C."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(prepare, *arguments, **options).result()


def database_of_settings(settings: Settings) -> "Database":
    """The database that the settings name. Raises `LogUnavailableError` without a driver or with a wrong URL."""
    try:
        from karrot.eventlog.postgres.connections import Database, DatabaseUrl
        from karrot.eventlog.postgres.passwords import password_of
    except ImportError as error:
        raise LogUnavailableError(
            f"an event log in PostgreSQL needs psycopg: pip install 'karrot-burrow[postgres]' ({error})"
        ) from error
    url = DatabaseUrl.parse(settings.event_log)
    return Database(url, password_of(settings, url))


def _limits(settings: Settings) -> dict[str, int]:
    return {
        "stale_after_ms": settings.stale_after * 1000,
        "retention_ms": settings.retention * 1000,
        "max_bytes": settings.max_log_bytes,
        "max_consumers": settings.max_consumers,
        "log_end_max_bytes": settings.log_end_max_bytes,
    }


_START_AGAIN_S = 1.0
_CLIENT_SECRETS = (
    *("burrow_password", "burrow_password_previous", "burrow_token", "burrow_token_previous"),
    *("api_token", "api_token_previous"),
)
"""The settings with the secrets that clients send to Karrot."""

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
    _log_settings(loaded)
    with prepared_log(loaded.settings, clock) as open_log:
        refuse_taken_port(loaded.settings.bind)  # after the lock, so that workers of a dead parent have left the port
        Plan(loaded.settings, load, clock, open_log).run()
    return 0


def try_out(settings: Settings) -> None:
    """Check that a worker could start with these settings. Raises `SettingsError` with all problems."""
    problems: list[str] = []
    try:
        _certificate(settings)
    except SettingsError as error:
        problems += error.problems
    problems += _wrong_reporters(settings)
    if settings.is_on_postgresql:
        try:
            database_of_settings(settings)  # this does not connect yet
        except LogUnavailableError as error:
            problems.append(f"KARROT_EVENT_LOG: {error}")
    if settings.watch_bootstrap:
        from karrot.watch.client_process import ClientProcess
        from karrot.watch.cluster_interface import NotConnected, connect

        try:
            with closing(ClientProcess(partial(connect, settings.watch_bootstrap, settings.watch_client))) as cluster:
                cluster.check()  # this sends no request to Kafka yet
        except NotConnected as error:
            problems.append(f"KARROT_WATCH_BOOTSTRAP: {error}")
    if problems:
        raise SettingsError(problems)


def _wrong_reporters(settings: Settings) -> Iterator[str]:
    clock = SystemClock()
    log = MemoryEventLog(clock)
    for name in settings.reporters:
        try:
            reporter = _open_reporter(settings, name, clock, log)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of other packages: show its error to the user
            yield f"KARROT_REPORTERS: {name} cannot be built: {type(error).__name__}: {error}"
        else:
            if not isinstance(reporter, PullReporter):
                reporter.close()
    log.close()  # SQLite must not be open during a fork


class Plan(Server):
    """Holds the current settings in the parent process, and builds a worker's service from them."""

    def __init__(self, settings: Settings, load: Callable[[], Loaded], clock: Clock, open_log: OpenLog) -> None:
        self._settings = settings
        self._load = load
        self._clock = clock
        self._open_log = open_log
        self._certificate = _certificate(settings)
        self._leader = LeaderProcess()
        super().__init__()

    def options(self) -> Mapping[str, Any]:
        settings = self._settings
        return {
            "bind": str(settings.bind),
            "workers": settings.workers,
            "threads": settings.threads,
            "certfile": settings.tls_cert and str(settings.tls_cert),
            "keyfile": settings.tls_key and str(settings.tls_key),
        }

    def read_settings(self) -> None:
        """Load the settings again after SIGHUP. Keep the old settings if the new settings are wrong."""
        try:
            loaded = self._load()
            fixed = needs_restart(self._settings, loaded.settings)
            settings = checked(replace(loaded.settings, **{each.field: each.of(self._settings) for each in fixed}))
            try_out(settings)
            self._certificate = _certificate(settings)
        except SettingsError as error:
            for problem in error.problems:
                _log.error("the new settings are refused, the old ones stay", code="settings_refused", reason=problem)
            return
        if fixed:
            _log.warning(
                "some settings take effect with a restart, not a reload",
                code="restart_needed",
                settings=", ".join(each.name for each in fixed),
            )
        self._settings = settings
        logs.configure(self._settings.log, sys.stdout)
        _log_settings(loaded)

    def build(self) -> "Service":
        """Build the service of one worker. A failure is logged and ends the worker, and gunicorn starts another."""
        try:
            return Service(self._settings, self._clock, self._open_log, self._leader, self._certificate)
        except Exception as error:  # noqa: BLE001 - perhaps a temporary lack of space or threads: the others go on
            _log.exception(
                "this worker cannot start; another one is started", code="worker_starts_again", reason=str(error)
            )
            time.sleep(_START_AGAIN_S)
            sys.exit(1)


class Service:
    """Holds everything that one worker runs. Build it after the fork."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        open_log: OpenLog,
        leader: LeaderProcess,
        certificate: Certificate | None = None,
    ) -> None:
        self._log = open_log(settings)
        self.tls = None if certificate is None else certificate.newest(self._log.count)
        pull = _pull_reporters(settings, self._log, clock)
        self._last_weeks = LastWeeks(settings.tables_dir or settings.data_dir / "tables", clock)
        self.context = _web_context(settings, self._log, clock, pull, self._last_weeks, leader=leader)
        duties = [partial(duty, settings, self._log, self.context.intake, clock) for duty in _duties(settings).values()]
        fed = [name for name in settings.reporters if name not in pull]
        builders: dict[str, Any] = {name: partial(_open_reporter, settings, name, clock, self._log) for name in fed}
        self._delivery = Delivery(self._log, builders, clock, alongside=[*duties, leader.hold])
        self.wsgi = create_app(self.context)
        self.header_timeout = settings.header_timeout
        self._delivery.start()

    def close(self) -> None:
        self._delivery.stop()
        self._log.close()
        self._last_weeks.close()


def _duties(settings: Settings) -> Mapping[str, Callable[[Settings, EventLog, Intake, Clock, threading.Event], None]]:
    """The leader's duties besides delivery. The keys are the names of their states in the event log."""
    duties = {}
    if settings.burrow_url:
        duties[RESYNC] = _resync
    if settings.watch_bootstrap:
        from karrot.watch.poll_loop import serve_watch

        duties[WATCH] = serve_watch
    return duties


def _resync(settings: Settings, log: EventLog, intake: Intake, clock: Clock, stop: threading.Event) -> None:
    from karrot.burrow.client import Burrow
    from karrot.resync import Resync

    burrow = Burrow(settings.burrow_url or "")
    # One read without a new commit proves nothing, even if reads are rare.
    cut_off_s = max(settings.burrow_cut_off_after, 2 * settings.resync_interval)
    times = {"interval_s": settings.resync_interval, "cut_off_s": cut_off_s}
    Resync(burrow, intake, log, clock, **times).run(stop)


def _pull_reporters(settings: Settings, log: EventLog, clock: Clock) -> Mapping[str, PullReporter]:
    """Build the pull reporters, which every worker has. Only a built reporter shows its kind, so build all."""
    pull: dict[str, PullReporter] = {}
    for name in settings.reporters:
        try:
            each = _open_reporter(settings, name, clock, log)
        except (Exception, SystemExit):  # noqa: BLE001, S112 - other packages; delivery retries and logs why
            continue
        if isinstance(each, PullReporter):
            pull[name] = each
        else:
            each.close()  # the leader builds its own
    return pull


def _open_reporter(settings: Settings, name: str, clock: Clock, log: EventLog) -> Reporter:
    """Build a reporter that is turned on. The package that registered the reporter builds it."""
    context = Context(
        name=name,
        settings=settings.reporter_settings(name),
        options=options_of(settings, name),
        count=log.count,
        clock=clock,
        log_time_ms=log.log_time_ms,
        recall=partial(log.recall, name),
        remember=partial(log.remember, name),
        leads=log.leads,
        cut_off=partial(cut_off, log),
        heard=log.heard,
        event=log.event,
        live=log.live,
        muted=lambda keys: mutes.muted(log, keys, clock.wall_ms()),
        explain=lambda state: explain(gather(log, state)),
    )
    found = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if len(found) != 1:
        raise LookupError(f"the installed packages offer {len(found)} reporters {name!r}: {', '.join(found)}")
    reporter = found.popitem()[1].load()(context)
    if not isinstance(reporter, PushReporter | PullReporter):
        raise TypeError("it has not every_s, report and close of a PushReporter, nor collector of a PullReporter")
    return reporter


def options_of(settings: Settings, reporter: str) -> object:
    """The part of the settings that a built-in reporter gets. This part has no secret."""
    match reporter:
        case "prometheus":
            return prometheus.Options(
                partition_metrics=settings.partition_metrics,
                topic_metrics=settings.topic_metrics,
                watch=bool(settings.watch_bootstrap),
                exclude=settings.exclude_consumers,
                expected_clusters=settings.expected_clusters,
                reporters=settings.reporters,
            )
        case "archive":
            return replace(settings.archive, place=settings.archive.place or settings.data_dir / "archive")
        case "notify":
            return settings.notify_config, settings.external_url
    return {"cloudwatch": settings.cloudwatch, "kafka": settings.kafka}.get(reporter)


def _web_context(
    settings: Settings,
    log: EventLog,
    clock: Clock,
    pull: Mapping[str, PullReporter],
    last_weeks: AskLastWeeks,
    *,
    leader: LeaderProcess,
) -> WebContext:
    collectors = {name: reporter.collector(log) for name, reporter in pull.items()}
    if "prometheus" in pull:
        collectors["process"] = leader.collector()
    return WebContext(
        intake=Intake(log, clock, pull_reporters=tuple(pull)),
        log=log,
        clock=clock,
        render_metrics=partial(prometheus.render, collectors, count=log.count),
        effective_settings=partial(effective, settings),
        reporters=settings.reporters,
        duties=tuple(_duties(settings)),
        version=__version__,
        credentials=_newest_credentials(settings, log.count),
        metrics_auth=settings.metrics_auth,
        external_url=settings.external_url,
        max_body=settings.max_body,
        body_timeout=settings.body_timeout,
        stale_after_ms=settings.stale_after * 1000,
        expected_clusters=settings.expected_clusters,
        max_consumers=settings.max_consumers,
        queries=partial(_queries, settings),
        last_weeks=last_weeks,
    )


def _queries(settings: Settings, cluster: str, consumer: str) -> list[MetricNameQuery]:
    found = promql_queries(cluster, consumer)
    if "cloudwatch" in settings.reporters:
        from karrot.render.cloudwatch_metric_names import cloudwatch_queries

        found += cloudwatch_queries(cluster, consumer, settings.cloudwatch)
    return found


def _credentials(settings: Settings) -> Credentials:
    def valid(*secrets: Secret | None, user: str = "") -> tuple[bytes, ...]:
        return tuple(f"{user}{each.reveal()}".encode() for each in secrets if each)

    return Credentials(
        valid(settings.burrow_password, settings.burrow_password_previous, user=f"{settings.burrow_username or ''}:"),
        valid(settings.burrow_token, settings.burrow_token_previous),
        valid(settings.api_token, settings.api_token_previous),
    )


def _newest_credentials(settings: Settings, count: Callable[..., None]) -> Callable[[], Credentials]:
    """Make a function that returns the credentials, with the current content of the secret files."""
    first = _credentials(settings)
    files = {name: given for name, given in settings.secret_files.items() if name in _CLIENT_SECRETS}
    if not files:
        return partial(itemgetter(0), (first,))  # every event calls this function, and it runs no Python code
    kept = replace(settings, secret_files=files)
    return NewestFromFiles(
        lambda: _credentials(read_secrets_again(kept)), first, failure="secrets_unusable", count=count
    )


def _certificate(settings: Settings) -> Certificate | None:
    """Read the certificate from its files. Raises `SettingsError`."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    try:
        return Certificate.read(settings.tls_cert, settings.tls_key)
    except (OSError, ValueError) as error:
        wrong = f"KARROT_TLS_CERT and KARROT_TLS_KEY are not a certificate and its private key: {error}"
        raise SettingsError([wrong]) from error


def _log_settings(loaded: Loaded) -> None:
    for warning in loaded.warnings:
        _log.warning("doubtful setting", code="doubtful_setting", reason=warning)
    defaults = effective(Settings())
    for name, value in effective(loaded.settings).items():
        if value != defaults.get(name):
            _log.info("setting", name=name, value=value, source=loaded.sources.get(name, DEFAULT))
