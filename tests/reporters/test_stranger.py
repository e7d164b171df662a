"""A reporter of a package that Karrot knows nothing of: the example in examples/reporter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from karrot.burrow.payload import parse_webhook
from support.bodies import recorded
from support.service import running_service
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
    def report(self, events):
        raise RuntimeError("the destination is away")

    def close(self):
        pass


def build(context):
    return Broken()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example is installed as a user would install it."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    from_here = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, *from_here, "--target", target, EXAMPLE], check=True, timeout=100)
    return target


@pytest.fixture
def with_broken(installed: Path, tmp_path: Path) -> str:
    """A PYTHONPATH that also has a package whose reporter always fails."""
    site = tmp_path / "broken"
    info = site / "karrot_broken-1.dist-info"
    info.mkdir(parents=True)
    (site / "karrot_broken.py").write_text(BROKEN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: karrot-broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[karrot.reporters]\nbroken = karrot_broken:build\n")
    return os.pathsep.join(map(str, (installed, site)))


def lines_expected() -> list[list[str]]:
    events = [parse_webhook(recorded(name), observed_at_ms=0) for name in BODIES]
    return [f"{each.cluster} {each.consumer} {each.status_text} {each.total_lag}".split() for each in events]


def lines_in(file: Path) -> list[list[str]]:
    """The lines without the ids of the events."""
    return [line.split()[1:] for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def test_a_strangers_reporter_gets_every_event_in_the_order_of_the_log(installed: Path, tmp_path: Path) -> None:
    file = tmp_path / "events.txt"
    with running_service(
        tmp_path,
        PYTHONPATH=str(installed),
        KARROT_REPORTERS="prometheus,textfile",
        KARROT_TEXTFILE_PATH=str(file),
    ) as service:
        assert [service.post(recorded(name)) for name in BODIES] == [202] * len(BODIES)
        wait_for(lambda: len(lines_in(file)) >= len(BODIES))
        wait_for(lambda: 'karrot_reporter_events_count_total{reporter="textfile"} 4' in service.get("/metrics"))
    assert lines_in(file) == lines_expected()


def test_after_a_restart_it_goes_on_where_it_was(installed: Path, tmp_path: Path) -> None:
    file = tmp_path / "events.txt"
    environment = {
        "PYTHONPATH": str(installed),
        "KARROT_REPORTERS": "prometheus,textfile",
        "KARROT_TEXTFILE_PATH": str(file),
    }
    for name in BODIES[:2]:
        with running_service(tmp_path, **environment) as service:
            service.post(recorded(name))
            wait_for(lambda: 'karrot_reporter_backlog_events{reporter="textfile"} 0' in service.get("/metrics"))
    assert lines_in(file) == lines_expected()[:2]


def test_a_reporter_that_fails_stops_no_other(with_broken: str, tmp_path: Path) -> None:
    file = tmp_path / "events.txt"
    with running_service(
        tmp_path,
        PYTHONPATH=with_broken,
        KARROT_REPORTERS="broken,prometheus,textfile",
        KARROT_TEXTFILE_PATH=str(file),
    ) as service:
        for name in BODIES:
            service.post(recorded(name))
        wait_for(lambda: len(lines_in(file)) >= len(BODIES))
        failing = 'karrot_reporter_failures_total{reason="RuntimeError",reporter="broken"}'
        wait_for(lambda: failing in service.get("/metrics"))
        wait_for(lambda: 'karrot_reporter_backlog_events{reporter="broken"} 4' in service.get("/metrics"))
    assert lines_in(file) == lines_expected()


def test_a_setting_that_it_misses_stops_the_start_and_is_named(installed: Path, tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(installed),
        "KARROT_REPORTERS": "textfile",
        "KARROT_DATA_DIR": str(tmp_path),
        "KARROT_BIND": "127.0.0.1:0",
    }
    command = [sys.executable, "-m", "karrot", "serve"]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert ended.returncode != 0
    errors = [line for line in map(json.loads, ended.stdout.splitlines()) if line["level"] == "error"]
    assert any("KARROT_TEXTFILE_PATH is not set" in line.get("exception", "") for line in errors)
