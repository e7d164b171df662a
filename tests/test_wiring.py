import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import fields
from datetime import datetime
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn

import pytest
from structlog.testing import CapturingLogger
from werkzeug.test import Client

from karrot import burrow_cut_off, history, mutes, wiring
from karrot.burrow.client import Burrow
from karrot.clock import Clock
from karrot.event import GroupKey
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.intake import Intake
from karrot.reload_changed_files import Certificate
from karrot.reporters.base import Context, Reporter
from karrot.runbooks_and_remedies import TABLES_PROBLEMS
from karrot.server.start_gunicorn import LeaderProcess
from karrot.settings.loading import Loaded, SettingsError, load
from karrot.settings.options import Archive, Kafka, Settings
from karrot.settings.types import Bucket, Secret
from karrot.web.context import Credentials
from karrot.web.pages.last_weeks import LastWeeks, NotReadable
from karrot.wiring import prepared_log
from support.burrow.recorded_bodies import recorded_body
from support.eventlog.appended_events import append_event
from support.eventlog.mutes import make_mute
from support.manual_clock import ManualClock
from support.pipeline.mirrored_tables import aws_environment
from support.servers.self_signed_certificate import make_self_signed
from support.service.karrot_service import Service
from support.waiting import wait_for
from support.web.website import with_events

MOST_IMPORTED = 115
"""The maximum number of Karrot's modules and packages that a service with default settings may import."""


class Closing:
    """A destination that records its contexts, and which of them were closed while the event log was open."""

    every_s = 0.0
    contexts: ClassVar[list[Context]] = []
    closed: ClassVar[list[Context]] = []

    def __init__(self, context: Context) -> None:
        self.context = context
        self.contexts.append(context)

    def report(self, events: object) -> None:
        raise AssertionError(events)

    def close(self) -> None:
        self.context.recall("note")
        self.closed.append(self.context)


def build_needy(context: Context) -> Closing:
    assert context.settings["path"]
    return Closing(context)


def build_exiting(_context: Context) -> object:
    sys.exit("no licence")


def build_old(_context: Context) -> object:
    """Build a reporter of an older protocol, without `PushReporter.every_s`."""
    return SimpleNamespace(report=print, close=print)


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    builders = {"closing": Closing, "needy": build_needy, "old": build_old, "exiting": build_exiting}

    class Point(EntryPoint):
        def load(self) -> Callable[[Context], object]:
            return builders[self.name]

    monkeypatch.setattr(wiring, "entry_points", lambda group, name: [Point(name, "", group)])


def settings(**environ: str) -> Settings:
    told = {f"KARROT_{name.upper()}": value for name, value in environ.items()}
    return load(
        told, available=("prometheus", "stdout", "cloudwatch", "archive", "closing", "needy", "old", "exiting")
    ).settings


@contextmanager
def service_of(chosen: Settings) -> Iterator[wiring.Service]:
    """The service of one worker in this process."""
    clock = ManualClock()
    with (
        prepared_log(chosen, clock) as open_log,
        closing(wiring.Service(chosen, clock, open_log, LeaderProcess())) as service,
    ):
        yield service


def never_opened(_settings: Settings) -> NoReturn:
    raise AssertionError


@pytest.mark.usefixtures("offered")
def test_a_trial_builds_every_reporter_and_closes_it() -> None:
    Closing.contexts.clear()
    Closing.closed.clear()
    wiring.try_out(settings(reporters="closing,needy", needy_path="/tmp/x"))
    assert [each.name for each in Closing.closed] == ["closing", "needy"]


@pytest.mark.usefixtures("offered")
def test_a_worker_closes_each_reporter_that_it_builds_before_the_event_log() -> None:
    Closing.contexts.clear()
    Closing.closed.clear()
    with service_of(settings(event_log="memory", workers="1", reporters="closing")):
        wait_for(lambda: len(Closing.contexts) == 2)  # one in each worker, and one in the worker that leads
    assert Closing.closed == Closing.contexts


@pytest.mark.usefixtures("offered")
def test_a_reporter_that_cannot_be_built_is_named_with_its_reason() -> None:
    with pytest.raises(SettingsError, match="KARROT_REPORTERS: needy cannot be built: KeyError: 'path'"):
        wiring.try_out(settings(reporters="closing,needy"))


@pytest.mark.usefixtures("offered")
def test_a_reporter_that_ends_the_program_when_it_is_built_is_named() -> None:
    with pytest.raises(SettingsError, match="KARROT_REPORTERS: exiting cannot be built: SystemExit: no licence"):
        wiring.try_out(settings(reporters="exiting"))


@pytest.mark.usefixtures("offered")
def test_a_reporter_of_an_older_protocol_is_named_at_the_start() -> None:
    with pytest.raises(SettingsError, match="KARROT_REPORTERS: old cannot be built: TypeError: it has not every_s"):
        wiring.try_out(settings(reporters="old"))


def test_a_reload_with_wrong_settings_keeps_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    answers = [
        settings(tls_cert=str(junk), tls_key=str(junk)),
        settings(threads="3", bind="127.0.0.1:1"),
        settings(threads="4"),
    ]
    monkeypatch.setattr(wiring, "_log", log := CapturingLogger())
    plan = wiring.Plan(settings(), lambda: Loaded(answers.pop(0), ()), ManualClock(), never_opened)
    plan.reload()
    assert plan.options()["certfile"] is None
    plan.reload()
    assert plan.options() == {
        "bind": "0.0.0.0:5000",
        "workers": 2,
        "threads": 3,
        "certfile": None,
        "keyfile": None,
    }
    plan.reload()
    told = [call.kwargs for call in log.calls if "code" in call.kwargs]
    assert [each["code"] for each in told] == ["settings_refused", "restart_needed"]
    assert told[1]["settings"] == "KARROT_BIND"
    shown = [(call.kwargs["name"], call.kwargs["value"]) for call in log.calls if call.args == ("setting",)]
    directory = ("KARROT_DATA_DIR", str(Path("karrot-data").absolute()))
    threads = [("KARROT_THREADS", "3"), directory, ("KARROT_THREADS", "4"), directory]
    assert shown == [("KARROT_BIND", "127.0.0.1:1"), *threads]


def test_a_worker_that_cannot_start_waits_before_the_next_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lock(_settings: Settings) -> NoReturn:
        raise OSError("No locks available")

    pauses: list[float] = []
    monkeypatch.setattr(wiring, "time", SimpleNamespace(sleep=pauses.append))
    plan = wiring.Plan(settings(), lambda: Loaded(settings(), ()), ManualClock(), no_lock)
    with pytest.raises(SystemExit, match=r"\A1\Z"):
        plan.build()
    assert pauses == [1.0]


def test_a_reload_takes_a_new_certificate(tmp_path: Path) -> None:
    made = make_self_signed(tmp_path)
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(made.chain)
    key.write_bytes(made.key)
    chosen = settings(tls_cert=str(chain), tls_key=str(key))
    plan = wiring.Plan(settings(), lambda: Loaded(chosen, ()), ManualClock(), never_opened)
    plan.reload()
    assert plan._certificate == Certificate.read(chain, key)


def test_changed_files_of_clients_secrets_are_read_and_no_others(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("api_token", "burrow_token", "watch_properties_inline")}
    for file in files.values():
        file.write_text("old")
    told = {f"{name}_file": str(file) for name, file in files.items()}
    chosen = settings(watch_bootstrap="127.0.0.1:1", watch_cluster="prod-eu", **told)
    newest = wiring._newest_credentials(chosen, MemoryEventLog(ManualClock()).count)
    files["api_token"].write_text("new")
    files["watch_properties_inline"].unlink()
    assert newest() == Credentials(bearer=(b"old",), readers=(b"new",))


def test_a_memory_log_takes_the_bounds_of_the_settings() -> None:
    chosen = settings(event_log="memory", workers="1", max_consumers="7")
    with prepared_log(chosen, ManualClock()) as open_log:
        log = open_log(chosen)
    assert isinstance(log, MemoryEventLog)
    tracked = [append_event(log, consumer=f"g{number}").tracked for number in range(8)]
    assert tracked == [True] * 7 + [False]


def test_the_server_and_the_pages_get_the_limits_of_the_settings() -> None:
    chosen = settings(
        event_log="memory",
        workers="1",
        header_timeout="1s",
        body_timeout="3s",
        max_body="2KiB",
        max_consumers="7",
        stale_after="600s",
    )
    with service_of(chosen) as service:
        client = Client(with_events(service.context, service.wsgi))
        assert client.post("/burrow", data=recorded_body("karrot_v1.9.5_warn.json")).status_code == 202
        page = client.get("/").text
        context = service.context
    assert (service.header_timeout, service.context.body_timeout) == (1, 3)
    assert "A group leaves this page 10 min after its last event." in page
    assert (context.max_body, context.body_timeout, context.max_consumers) == (2_048, 3, 7)


def test_the_pages_get_the_credentials_and_addresses_of_the_settings() -> None:
    secrets = {
        "password": "p1",
        "password_previous": "p0",
        "token": "t1",
        "token_previous": "t0",
        "api_token": "a1",
        "api_token_previous": "a0",
    }
    told = {name if name.startswith("api") else f"burrow_{name}": secret for name, secret in secrets.items()}
    chosen = settings(
        event_log="memory",
        workers="1",
        burrow_username="burrow",
        metrics_auth="true",
        external_url="https://example.org/monitor",
        expected_clusters="a,b",
        **told,
    )
    with service_of(chosen) as service:
        context = service.context
        queries = context.queries("prod-eu", "orders-svc")
    assert context.credentials() == Credentials((b"burrow:p1", b"burrow:p0"), (b"t1", b"t0"), (b"a1", b"a0"))
    assert (context.metrics_auth, context.external_url) == (True, "https://example.org/monitor")
    assert context.expected_clusters == ("a", "b")
    assert queries == wiring._queries(chosen, "prod-eu", "orders-svc")


@pytest.mark.parametrize(("after", "cut_off_s"), [("16h", 16 * 3600), ("100s", 140)])
def test_resync_has_the_interval_and_the_patience_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, after: str, cut_off_s: int
) -> None:
    class Stopped(threading.Event):
        """Is set by the first wait."""

        waited: float | None = None

        def wait(self, timeout: float | None = None) -> bool:
            self.waited = timeout
            self.set()
            return True

    clock, stop = ManualClock(), Stopped()
    log = MemoryEventLog(clock)
    chosen = settings(burrow_url="http://127.0.0.1:1", resync_interval="70s", burrow_cut_off_after=after)
    monkeypatch.setattr(Burrow, "ready", lambda _: True)
    monkeypatch.setattr(Burrow, "clusters", lambda _: ["prod-eu"])
    monkeypatch.setattr(Burrow, "consumers", lambda *_: [])
    burrow_cut_off.keep(log, {"prod-eu": 1}, (), 120, 300)
    wiring._resync(chosen, log, Intake(log, clock), clock, stop)
    assert stop.waited == 70
    seen = burrow_cut_off.read(log)["prod-eu"]
    assert (seen.every_ms, seen.after_ms) == (70_000, 1000 * cut_off_s)


@pytest.mark.usefixtures("offered")
def test_a_reporter_hears_from_the_event_log_which_groups_are_muted() -> None:
    clock = ManualClock()
    log = MemoryEventLog(clock)
    wiring._open_reporter(settings(reporters="closing"), "closing", clock, log)
    muted, keys = Closing.contexts[-1].muted, [GroupKey("prod-eu", "orders-svc"), GroupKey("prod-eu", "billing")]
    assert list(muted(keys)) == []
    mutes.begin(log, make_mute(clock, pattern="orders*", seconds=60))
    assert list(muted(keys)) == keys[:1]
    clock.advance(60_000)
    assert list(muted(keys)) == []


@pytest.mark.usefixtures("offered")
def test_a_reporter_hears_from_the_event_log_whether_this_process_leads() -> None:
    class Replica(MemoryEventLog):
        does_lead = False

        def leads(self) -> bool:
            return self.does_lead

    clock = ManualClock()
    log = Replica(clock)
    wiring._open_reporter(settings(reporters="closing", closing_path="/tmp/x"), "closing", clock, log)
    context = Closing.contexts[-1]
    assert (context.name, context.settings, context.clock) == ("closing", {"path": "/tmp/x"}, clock)
    assert context.options is None
    assert "/tmp/x" not in repr(context)
    assert not context.leads()
    log.does_lead = True
    assert context.leads()
    context.remember("note", b"kept")
    assert (context.recall("note"), log.recall("closing", "note")) == (b"kept", b"kept")
    assert context.log_time_ms() == log.log_time_ms()


def test_a_reporter_that_cannot_be_built_leaves_the_others_to_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(settings: Settings, name: str, clock: Clock, log: EventLog) -> Reporter:
        if name == "cloudwatch":
            raise OSError("the proxy does not answer")
        return open_reporter(settings, name, clock, log)

    open_reporter = wiring._open_reporter
    monkeypatch.setattr(wiring, "_open_reporter", build)
    chosen = settings(reporters="cloudwatch,stdout,prometheus")
    assert list(wiring._pull_reporters(chosen, MemoryEventLog(ManualClock()), ManualClock())) == ["prometheus"]


def test_prometheus_shares_the_settings_of_the_service() -> None:
    chosen = settings(
        exclude_consumers="^test-",
        expected_clusters="a,b",
        topic_metrics="true",
        reporters="prometheus,stdout",
        watch_bootstrap="127.0.0.1:1",
        watch_cluster="prod-eu",
    )
    opened = wiring._open_reporter(chosen, "prometheus", ManualClock(), MemoryEventLog(ManualClock()))
    options = opened.options  # type: ignore[union-attr]
    assert (options.partition_metrics, options.topic_metrics, options.expected_clusters) == (False, True, ("a", "b"))
    assert (options.reporters, options.watch) == (("prometheus", "stdout"), True)
    assert options.excludes("test-1")


def test_each_built_in_reporter_gets_only_its_own_settings_and_no_secret() -> None:
    chosen = settings(
        reporters="prometheus,cloudwatch,archive,stdout",
        cloudwatch_namespace="Mine",
        iam_role="arn:aws:iam::123456789012:role/karrot",
        compat="2019",
        archive_dir="/var/archive",
        api_token="hunter2",
        burrow_token="hunter2",
    )
    found: dict[str, Any] = {name: wiring.options_of(chosen, name) for name in (*chosen.reporters, "kafka")}
    assert {name: type(options).__name__ for name, options in found.items()} == {
        "prometheus": "Options",
        "cloudwatch": "CloudWatch",
        "archive": "Archive",
        "stdout": "NoneType",
        "kafka": "Kafka",
    }
    cloudwatch = found["cloudwatch"]
    told = (cloudwatch.namespace, cloudwatch.iam_role, cloudwatch.default_region)
    assert told == ("Mine", "arn:aws:iam::123456789012:role/karrot", "us-east-1")
    assert (found["archive"], found["kafka"]) == (Archive(Path("/var/archive")), Kafka())
    assert wiring.options_of(settings(data_dir="/data"), "archive") == Archive(Path("/data/archive"))
    values = [getattr(options, each.name) for options in found.values() if options for each in fields(options)]
    assert not any(isinstance(value, (Secret, Settings)) for value in values)


def test_a_group_has_its_cloudwatch_name_only_if_it_is_sent_there() -> None:
    assert {each.where for each in wiring._queries(settings(), "prod-eu", "orders-svc")} == {"PromQL"}
    found = wiring._queries(settings(reporters="prometheus,cloudwatch"), "prod-eu", "orders-svc")
    assert tuple(found[-1]) == ("CloudWatch", '["Karrot", "Lag", "Cluster", "prod-eu", "ConsumerGroup", "orders-svc"]')


def test_the_leader_runs_the_enabled_tasks(tmp_path: Path) -> None:
    def states() -> dict[str, str]:
        return {name: each["state"] for name, each in service.get("/readyz").json["components"].items()}

    with Service(tmp_path / "data", burrow_url="http://127.0.0.1:1") as service:
        wait_for(lambda: states() == {"log": "ok", "reporter prometheus": "idle", "resync": "failing"}, 30)


@pytest.fixture
def opened_tables(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Make all tables empty, and return the folders of the tables that are open."""
    opened: list[Path] = []

    class EmptyHistory:
        def __init__(self, tables: Path, **_limits: object) -> None:
            self.tables = tables
            opened.append(tables)

        def limited(self, _seconds: float) -> AbstractContextManager[None]:
            return nullcontext()

        def hourly(self, *_key: str, until: datetime) -> None:
            """Nothing is known."""

        def close(self) -> None:
            opened.remove(self.tables)

    monkeypatch.setattr(history, "History", EmptyHistory)
    return opened


def test_two_threads_that_ask_for_the_history_share_one_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened_tables: list[Path]
) -> None:
    asked: list[object] = []

    class AskedLock:
        """The lock of the reader; ``asked`` has an entry for each thread that holds it or waits for it."""

        def __init__(self, lock: threading.Lock) -> None:
            self._lock = lock

        def __enter__(self) -> None:
            asked.append(self)
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    class SlowHistory(history.History):
        def __init__(self, tables: Path, **limits: Any) -> None:
            wait_for(lambda: len(asked) == 2)
            super().__init__(tables, **limits)

    monkeypatch.setattr(history, "History", SlowHistory)
    past = LastWeeks(tmp_path, ManualClock())
    monkeypatch.setattr(past, "_lock", AskedLock(past._lock))
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(past, "prod", consumer) for consumer in ("a", "b")]
    assert [answer.result() for answer in answers] == [None, None]
    assert opened_tables == [tmp_path]


def test_the_tables_are_queried_once_a_minute_for_a_group_and_after_a_failure_once_in_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, past, asked = ManualClock(), LastWeeks(tmp_path, ManualClock()), []

    def ask(_cluster: str, consumer: str) -> NotReadable | None:
        asked.append(consumer)
        return None if len(asked) > 1 else NotReadable("away")

    past._clock = clock
    monkeypatch.setattr(past, "_ask", ask)
    for waited_ms, consumer, queries in (
        (0, "a", 1),
        (9_000, "a", 1),
        (1_001, "a", 2),
        (59_000, "a", 2),
        (0, "b", 3),
        (1_001, "a", 4),
        (0, "b", 4),
    ):
        clock.advance(waited_ms)
        past("prod", consumer)
        assert len(asked) == queries


@pytest.mark.parametrize("named", [{}, {"tables_dir": "elsewhere"}], ids=["in the data directory", "elsewhere"])
def test_the_pages_query_the_tables_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened_tables: list[Path], named: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = Path(named.get("tables_dir", "data/tables"))
    tables.mkdir(parents=True)
    with service_of(settings(event_log="memory", workers="1", data_dir="data", **named)) as service:
        assert service.context.last_weeks("prod-eu", "orders-svc") is None
        assert opened_tables == [tables if named else tables.absolute()]
    assert opened_tables == []


def test_a_failure_of_tables_in_s3_has_a_code_and_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws_environment("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    past = LastWeeks(Bucket.parse("s3a://lag/tables/"), ManualClock())
    found = past("prod", "orders")
    past.close()
    assert isinstance(found, NotReadable)
    # On a slow machine, the time limit can end before the second attempt to connect.
    assert found.code in {"tables_unavailable", "history_too_slow"}
    assert found.message.startswith("s3://lag/tables")
    assert found.remedy in TABLES_PROBLEMS.values()


def test_a_service_imports_only_the_modules_that_its_settings_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count all modules and packages, including ``karrot``, that the parent or a worker imports.

    The count runs from the start until the service has stored an event, shown its pages and answered a scrape.
    """
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # Python writes a line for each import
    with Service(tmp_path / "data") as service:
        assert service.post(recorded_body("karrot_v1.9.5_warn.json")).status == 202
        for path in ("/", "/api/v1/groups", "/reporters", "/metrics"):
            assert service.get(path).status == 200
        [group] = service.get("/api/v1/groups").json["groups"]
        assert service.get(f"/group?cluster={group['cluster']}&consumer={group['consumer']}").status == 200
    imported = set(re.findall(r"^import time: .*\| +(karrot(?:\.\w+)*)$", service.said.read_text(), re.MULTILINE))
    assert {"karrot", "karrot.wiring", "karrot.web.webhook"} <= imported
    assert len(imported) <= MOST_IMPORTED, sorted(imported)
    off = ("karrot.burrow.client", "karrot.reporters.cloudwatch", "karrot.resync", "karrot.watch", "karrot.history")
    assert [name for name in sorted(imported) if name.startswith(off)] == []
