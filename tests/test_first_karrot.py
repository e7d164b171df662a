"""The faults of the first Karrot (1.x) are not in this one; each fault has a test."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families
from werkzeug.test import Client

from karrot import wiring
from karrot.delivery import Delivery
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.sqlite import SqliteEventLog
from karrot.intake import Intake
from karrot.server.leader_process import LeaderProcess
from karrot.settings.loading import load
from karrot.settings.options import OPTIONS
from karrot.wiring import prepared_log
from support.burrow.recorded_bodies import recorded_body
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock
from support.waiting import wait_for
from support.web.website import Website, make_website

WARN = recorded_body("karrot_v1.9.5_warn.json")
SLACK = recorded_body("default_slack_post_v1.9.5.json")
STALE_MS = 300_000
RETENTION_MS = 600_000


def told(
    lag: int = 11_020, *, cluster: str = "prod-eu", consumer: str = "orders-svc", status: str | None = None
) -> bytes:
    """Return the recorded WARN with these changes."""
    body = WARN.replace(b'"totallag":11020', b'"totallag":%d' % lag)
    body = body.replace(b'"prod-eu"', b'"%s"' % cluster.encode()).replace(b'"orders-svc"', b'"%s"' % consumer.encode())
    return body if status is None else body.replace(b'"WARN","complete"', b'"%s","complete"' % status.encode(), 1)


def open_log(directory: Path, clock: ManualClock, **options: Any) -> SqliteEventLog:
    return open_sqlite(directory, clock, stale_after_ms=STALE_MS, retention_ms=RETENTION_MS, **options)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteEventLog]:
    with closing(open_log(tmp_path, clock)) as log:
        yield log


@pytest.fixture
def website(log: SqliteEventLog, clock: ManualClock) -> Website:
    return make_website(log=log, clock=clock)


def post(website: Website, body: bytes) -> int:
    return website.client.post("/burrow", data=body).status_code


def samples(client: FlaskClient, name: str = "karrot_consumer_lag") -> list[tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return [(each.labels, each.value) for family in families for each in family.samples if each.name == name]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        pytest.param("POST", "/burrow", b"", 411, id="no body"),
        pytest.param("POST", "/burrow", b"[]", 400, id="an array"),
        pytest.param("POST", "/burrow", b'{"Event": {}}', 400, id="an empty event"),
        pytest.param("POST", "/burrow", SLACK, 400, id="Burrow's template for Slack"),
        pytest.param("POST", "/burrow", b"x" * (8 << 20) + b"x", 413, id="a body above 8 MiB"),
        pytest.param("GET", "/burrow", b"", 405, id="GET of the webhook"),
        pytest.param("GET", "/api/v1/group?cluster=a&consumer=b", b"", 404, id="an unknown group"),
        pytest.param("GET", "/nowhere", b"", 404, id="an unknown path"),
    ],
)
def test_an_error_is_not_answered_with_200(website: Website, method: str, path: str, body: bytes, status: int) -> None:
    assert website.client.open(path, method=method, data=body).status_code == status


def test_an_event_that_cannot_be_stored_is_not_answered_with_200(tmp_path: Path, clock: ManualClock) -> None:
    log = open_log(tmp_path, clock)
    client = make_website(log=log, clock=clock).client
    log.close()
    answer = client.post("/burrow", data=WARN)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


@pytest.mark.parametrize("variable", ["FLASK_ENV", "FLASK_DEBUG", "KARROT_ENV"])
def test_no_variable_turns_a_debugger_on(
    log: SqliteEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "development" if variable.endswith("ENV") else "1")

    def fail() -> dict[str, str]:
        raise RuntimeError("internals")

    client = make_website(log=log, clock=clock, effective_settings=fail).client
    answer = client.get("/config")
    assert answer.status_code == 500
    assert "internals" not in answer.text
    assert "Traceback" not in answer.text


def test_there_is_one_series_per_group_whichever_worker_answers(tmp_path: Path, clock: ManualClock) -> None:
    with closing(open_log(tmp_path, clock)) as one, closing(open_log(tmp_path, clock, prepare=False)) as other:
        workers = [make_website(log=log, clock=clock) for log in (one, other)]
        for lag, worker in enumerate([*workers, *workers]):
            assert post(worker, told(lag)) == 202
        shown = [samples(worker.client) for worker in workers]
    assert shown == [[({"cluster": "prod-eu", "consumer": "orders-svc"}, 3.0)]] * 2


def test_the_series_of_a_silent_group_end(website: Website, clock: ManualClock) -> None:
    post(website, told())
    clock.advance(STALE_MS)
    assert len(samples(website.client)) == 1
    clock.advance(1)
    assert samples(website.client) == []
    assert '"orders-svc"' not in website.client.get("/metrics").text


def test_the_series_of_a_deleted_group_end_at_once(website: Website) -> None:
    post(website, told())
    assert post(website, told(status="NOTFOUND")) == 202
    assert '"orders-svc"' not in website.client.get("/metrics").text


def test_equal_names_on_two_clusters_count_as_two_groups(website: Website) -> None:
    post(website, told(1, cluster="eu"))
    post(website, told(2, cluster="us"))
    assert samples(website.client) == [
        ({"cluster": "eu", "consumer": "orders-svc"}, 1.0),
        ({"cluster": "us", "consumer": "orders-svc"}, 2.0),
    ]


def test_a_close_sent_with_delete_is_accepted_with_its_body(website: Website) -> None:
    assert website.client.delete("/burrow", data=told(5, status="OK")).status_code == 202
    assert samples(website.client) == [({"cluster": "prod-eu", "consumer": "orders-svc"}, 5.0)]


def test_the_verdict_is_exported_with_its_lag(website: Website) -> None:
    post(website, told())
    group = {"cluster": "prod-eu", "consumer": "orders-svc"}
    assert samples(website.client, "karrot_consumer_status_code") == [(group, 2.0)]
    assert samples(website.client, "karrot_consumer_max_lag") == [(group, 10_440.0)]
    assert samples(website.client, "karrot_consumer_complete_ratio") == [(group, 1.0)]


def test_an_event_is_counted_once(log: SqliteEventLog, clock: ManualClock) -> None:
    website = make_website(log=log, clock=clock, intake=Intake(log, clock, pull_reporters=("prometheus",)))
    post(website, told())
    assert ({"source": "webhook"}, 1.0) in samples(website.client, "karrot_events_accepted_total")
    assert ({"reporter": "prometheus"}, 1.0) in samples(website.client, "karrot_reporter_events_count_total")


class Remembering:
    """A destination that keeps its events."""

    def __init__(self) -> None:
        self.seen: list[int | None] = []

    def report(self, events: Sequence[StoredEvent]) -> None:
        self.seen += [each.event.total_lag for each in events]

    def close(self) -> None:
        """Do nothing."""


class Slow(Remembering):
    """A destination whose report does not return until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.called = threading.Event()
        self.released = threading.Event()

    def report(self, events: Sequence[StoredEvent]) -> None:
        self.called.set()
        self.released.wait(30)
        super().report(events)


class Failing(Remembering):
    """A destination that raises a given error until it is repaired."""

    def __init__(self, failure: Callable[[], BaseException]) -> None:
        super().__init__()
        self.failure: Callable[[], BaseException] | None = failure
        self.failed = threading.Event()

    def report(self, events: Sequence[StoredEvent]) -> None:
        if self.failure is not None:
            self.failed.set()
            raise self.failure()
        super().report(events)


def test_a_slow_reporter_delays_no_request_and_no_other_reporter(website: Website, clock: ManualClock) -> None:
    slow, other = Slow(), Remembering()
    delivery = Delivery(website.log, {"slow": lambda: slow, "other": lambda: other}, clock)
    delivery.start()
    try:
        assert post(website, told(1)) == 202
        assert slow.called.wait(10)
        assert post(website, told(2)) == 202
        assert samples(website.client)[0][1] == 2.0
        wait_for(lambda: other.seen == [1, 2])
        assert slow.seen == []
        slow.released.set()
        wait_for(lambda: slow.seen == [1, 2])
    finally:
        slow.released.set()
        delivery.stop()


@pytest.mark.parametrize("failure", [lambda: ConnectionError("no route"), lambda: SystemExit(1)], ids=["raise", "exit"])
def test_a_failing_reporter_stops_no_other_part_and_misses_no_event(
    website: Website, clock: ManualClock, failure: Callable[[], BaseException]
) -> None:
    failing, other = Failing(failure), Remembering()
    delivery = Delivery(website.log, {"failing": lambda: failing, "other": lambda: other}, clock)
    delivery.start()
    try:
        assert post(website, told(1)) == 202
        assert failing.failed.wait(10)
        assert post(website, told(2)) == 202
        wait_for(lambda: other.seen == [1, 2])
        failing.failure = None
        wait_for(lambda: failing.seen == [1, 2])
    finally:
        delivery.stop()


def test_a_restart_loses_no_event_and_needs_no_next_event(tmp_path: Path, clock: ManualClock) -> None:
    with closing(open_log(tmp_path, clock)) as log:
        before = make_website(log=log, clock=clock)
        for lag in range(25):  # more than the first Karrot's batch of 20 and less than two batches
            assert post(before, told(lag, consumer=f"g{lag}")) == 202
        shown = samples(before.client)
    destination = Remembering()
    with closing(open_log(tmp_path, clock)) as log:
        assert samples(make_website(log=log, clock=clock).client) == shown
        delivery = Delivery(log, {"destination": lambda: destination}, clock)
        delivery.start()
        try:
            wait_for(lambda: destination.seen == list(range(25)))
        finally:
            delivery.stop()


def test_config_shows_no_secret_and_is_closed_with_a_token(tmp_path: Path, clock: ManualClock) -> None:
    secrets = {each.name: f"canary-{number}" for number, each in enumerate(OPTIONS) if each.is_secret}
    environ = {"KARROT_DATA_DIR": str(tmp_path), "KARROT_BURROW_USERNAME": "burrow", **secrets}
    settings = load(environ).settings
    with (
        prepared_log(settings, clock) as open_chosen,
        closing(wiring.Service(settings, clock, open_chosen, LeaderProcess())) as service,
    ):
        client = Client(service.wsgi)
        assert {client.get(path).status_code for path in ("/config", "/reporters")} == {401}
        token = {"Authorization": f"Bearer {secrets['KARROT_API_TOKEN']}"}
        answers = [client.get(path, headers=token) for path in ("/config", "/reporters", "/", "/openapi.json")]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert len(secrets) >= 5
    assert answers[0].json is not None
    assert {answers[0].json["config"][name] for name in secrets} == {"***"}
    assert "canary" not in "".join(answer.text for answer in answers)


def test_no_key_is_hard_coded(website: Website) -> None:
    assert website.client.application.secret_key is None


LOOK = """
import importlib, logging, os, pkgutil, sys, threading
import structlog

def opened():
    with os.scandir("/proc/self/fd") as descriptors:
        targets = [os.readlink(each) for each in descriptors]
    # libffi keeps its own file open for its trampolines, from the first callback of ctypes on.
    return sorted(each for each in targets if "/libffi.so" not in each)

before = opened()
import karrot
for module in pkgutil.walk_packages(karrot.__path__, "karrot."):
    if module.name != "karrot.__main__":
        importlib.import_module(module.name)
print(threading.active_count(), logging.root.handlers, structlog.is_configured(), sorted(os.listdir(".")),
      [each for each in opened() if each not in before], "boto3" in sys.modules)
"""


def test_importing_any_module_has_no_side_effect(tmp_path: Path) -> None:
    seen = subprocess.check_output([sys.executable, "-P", "-c", LOOK], cwd=tmp_path, text=True)
    assert seen == "1 [] False [] [] False\n"
