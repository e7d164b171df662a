"""A reporter of another package works: the example in examples/reporter."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from karrot.burrow.payload import parse_webhook
from karrot.cli import NAME
from support.burrow.recorded_bodies import recorded_body
from support.service.karrot_service import Service
from support.waiting import wait_for

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "reporter"
BODIES = [
    "karrot_v1.9.5_open_ok_t1.json",
    "karrot_v1.9.5_err_stall.json",
    "karrot_v1.9.5_close.json",
    "karrot_v1.9.5_group_unicode.json",
]
BROKEN = """
class Broken:
    every_s = 0

    def report(self, events):
        raise RuntimeError("the destination is away")

    def close(self):
        pass


def build(context):
    return Broken()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example, installed as a user would install it."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    from_here = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, *from_here, "--target", target, EXAMPLE], check=True, timeout=100)
    return target


@pytest.fixture
def with_broken(installed: Path, tmp_path: Path) -> str:
    """Return a PYTHONPATH that also has a package whose reporter always fails."""
    site = tmp_path / "broken"
    info = site / "karrot_broken-1.dist-info"
    info.mkdir(parents=True)
    (site / "karrot_broken.py").write_text(BROKEN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: karrot-broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[karrot.reporters]\nbroken = karrot_broken:build\n")
    return os.pathsep.join(map(str, (installed, site)))


def test_the_example_depends_on_karrot_by_the_name_of_its_distribution() -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [dependency] = project["dependencies"]
    assert dependency.partition(">=")[0] == NAME


def lines_expected() -> list[list[str]]:
    events = [parse_webhook(recorded_body(name), observed_at_ms=0) for name in BODIES]
    return [f"{each.cluster} {each.consumer} {each.status_text} {each.total_lag}".split() for each in events]


def lines_in(file: Path) -> list[list[str]]:
    """Return the lines without the ids of the events."""
    return [line.split()[1:] for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.txt"


@pytest.fixture
def service(installed: Path, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Yield a service, not started yet, with the example's reporter, which writes to ``file``."""
    monkeypatch.setenv("PYTHONPATH", str(installed))
    service = Service(tmp_path / "data", reporters="prometheus,textfile", textfile_path=str(file))
    yield service
    service.kill()


def test_the_example_reporter_gets_every_event_in_the_order_of_the_log(service: Service, file: Path) -> None:
    service.start()
    assert [service.post(recorded_body(name)).status for name in BODIES] == [202] * len(BODIES)
    wait_for(lambda: service.metric("karrot_reporter_events_total", reporter="textfile") == len(BODIES))
    assert lines_in(file) == lines_expected()


def test_the_example_reporter_continues_at_its_cursor_after_a_restart(service: Service, file: Path) -> None:
    for name in BODIES[:2]:
        service.start()
        service.post(recorded_body(name))
        wait_for(lambda: service.metric("karrot_reporter_backlog_events", reporter="textfile") == 0)
        assert service.stop() == 0
    assert lines_in(file) == lines_expected()[:2]


def test_a_failing_reporter_does_not_stop_others(
    service: Service, file: Path, with_broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", with_broken)
    service.settings["reporters"] = "broken,prometheus,textfile"
    service.start()
    for name in BODIES:
        service.post(recorded_body(name))
    wait_for(lambda: service.metric("karrot_reporter_events_total", reporter="textfile") == len(BODIES))
    wait_for(lambda: (service.metric("karrot_reporter_failures_total", reporter="broken") or 0) > 0)
    assert service.metric("karrot_reporter_backlog_events", reporter="broken") == len(BODIES)
    assert lines_in(file) == lines_expected()


def test_a_missing_setting_of_the_reporter_stops_the_start_and_is_named(service: Service) -> None:
    del service.settings["textfile_path"]
    service.start(wait=False)
    assert service.process is not None
    assert service.process.wait(30) != 0
    assert "KARROT_TEXTFILE_PATH is not set" in service.said.read_text()
