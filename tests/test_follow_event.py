"""The architecture names every file that an event passes through, from the socket to ``/metrics``."""

import os
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from support.burrow.recorded_bodies import recorded_body
from support.service.karrot_service import Service
from support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[1]
IN, OUT = 18, 7
"""The maximum of files that an event passes through until it is answered, and of further files until it is scraped."""

PROFILE = """
import os, sys, threading
from importlib.util import find_spec

flag, out = os.environ["WALK_FLAG"], os.environ["WALK_OUT"]
root = os.path.dirname(find_spec("karrot").origin) + os.sep
seen = set()

def profile(frame, event, _argument):
    code = frame.f_code
    if event != "call" or code.co_name == "<module>" or not code.co_filename.startswith(root):
        return
    # The periodic work of the delivery thread belongs to no request.
    if (thread := threading.current_thread().name) == "karrot-delivery":
        return
    with open(flag) as file:
        phase = file.read()
    if phase and (phase, code.co_filename) not in seen:
        seen.add((phase, code.co_filename))
        with open(out, "a") as file:
            file.write(f"{phase} karrot/{code.co_filename.removeprefix(root)}\\n")

threading.setprofile(profile)
sys.setprofile(profile)
"""


def test_an_event_passes_through_the_files_that_the_architecture_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, out = tmp_path / "flag", tmp_path / "out"
    flag.touch()
    out.touch()
    (tmp_path / "sitecustomize.py").write_text(PROFILE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("WALK_FLAG", str(flag))
    monkeypatch.setenv("WALK_OUT", str(out))
    section = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("\n## Follow one ")[1]
    way_in, way_out = (_files(part) for part in section.split("\nThe way out "))
    body = recorded_body("karrot_v1.9.5_err_stop.json")
    with Service(tmp_path / "data", workers="1") as service:
        for _ in range(3):  # work that a service does only for its first requests does not count
            assert service.get("/metrics").status == 200
            assert service.post(body).status == 202
        flag.write_text("in")
        assert service.post(body).status == 202
        # Some files run after the answer: a connection is closed, the length of the write-ahead log is read.
        _await(lambda: way_in <= _passed(out)["in"])
        flag.write_text("out")
        assert service.get("/metrics").status == 200
        _await(lambda: way_out <= _passed(out)["in"] | _passed(out)["out"])
        flag.write_text("")
    passed = _passed(out)
    further = passed["out"] - passed["in"]
    assert way_in | way_out == passed["in"] | further
    assert len(passed["in"]) <= IN
    assert len(further) <= OUT


def _files(text: str) -> set[str]:
    return set(re.findall(r"`(karrot/[\w/]+\.py)`", text))


def _passed(out: Path) -> dict[str, set[str]]:
    """The files that ran in each phase so far."""
    passed = defaultdict(set)
    for line in out.read_text().splitlines():
        phase, _, path = line.partition(" ")
        passed[phase].add(path)
    return passed


def _await(condition: Callable[[], bool]) -> None:
    """Wait for the condition, but not for ever: the comparison at the end shows which files are missing."""
    with suppress(AssertionError):
        wait_for(condition, 5)
