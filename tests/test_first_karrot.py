"""Faults of the first Karrot (1.x) that are not in this one, and that no other test is about."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from karrot.delivery import Delivery
from karrot.eventlog.sqlite import SqliteEventLog
from karrot.reporters.base import Unreported
from support.burrow.recorded_bodies import recorded_body
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock
from support.waiting import wait_for
from support.web.website import Website, make_website

WARN = recorded_body("karrot_v1.9.5_warn.json")
STALE_MS = 300_000
RETENTION_MS = 600_000


def told(lag: int, *, consumer: str = "orders-svc") -> bytes:
    """Return the recorded WARN with these changes."""
    body = WARN.replace(b'"totallag":11020', b'"totallag":%d' % lag)
    return body.replace(b'"orders-svc"', b'"%s"' % consumer.encode())


def open_log(directory: Path, clock: ManualClock, **options: Any) -> SqliteEventLog:
    return open_sqlite(directory, clock, stale_after_ms=STALE_MS, retention_ms=RETENTION_MS, **options)


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


class Remembering:
    """A destination that keeps its events."""

    every_s = 0.0

    def __init__(self) -> None:
        self.seen: list[int | None] = []

    def report(self, events: Unreported) -> None:
        self.seen += [each.event.total_lag for each in events]

    def close(self) -> None:
        """Do nothing."""


class Slow(Remembering):
    """A destination whose report does not return until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.called = threading.Event()
        self.released = threading.Event()

    def report(self, events: Unreported) -> None:
        self.called.set()
        self.released.wait(30)
        super().report(events)


class Failing(Remembering):
    """A destination that raises a given error until it is repaired."""

    def __init__(self, failure: Callable[[], BaseException]) -> None:
        super().__init__()
        self.failure: Callable[[], BaseException] | None = failure
        self.failed = threading.Event()

    def report(self, events: Unreported) -> None:
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

        def has_all_later() -> bool:
            clock.advance(1000)
            return failing.seen == [1, 2]

        wait_for(has_all_later)
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
