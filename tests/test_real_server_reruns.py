"""A test with real servers may run a second time, but not in silence, and not if its name is in tests/flaky.toml."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

FAILS_ONCE = """
from pathlib import Path
import pytest

@pytest.mark.real_server
@pytest.mark.parametrize("name", {names})
def test_race(name):
    runs = Path(name)
    before = len(runs.read_text()) if runs.exists() else 0
    runs.write_text("x" * (before + 1))
    assert before != {bad_run}

@pytest.mark.real_server
def test_sound():
    pass
"""
LISTED = '[[flaky]]\ntest = "tests/e2e/test_race.py::test_race[a]"\nseen = 2026-11-28\n'


def run(tree: Path, *, names: list[str], bad_run: int, listed: str = "") -> "subprocess.CompletedProcess[str]":
    """Run the script on tests that each fail in one of their runs."""
    (tree / "tests" / "e2e").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "conftest.py", tree / "tests")
    (tree / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["real_server"]\n')
    (tree / "tests" / "e2e" / "test_race.py").write_text(FAILS_ONCE.format(names=names, bad_run=bad_run))
    (tree / "tests" / "flaky.toml").write_text(listed)
    # Many busy loops and many plugins only delay these tests.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    code = "import real_server as tool; tool.os.cpu_count = lambda: 1; tool.BUSY_LOOPS_PER_CORE = 1; exit(tool.main())"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def test_a_test_that_passes_only_the_second_time_is_shown_with_the_lines_to_commit(tmp_path: Path) -> None:
    done = run(tmp_path, names=["a", "b"], bad_run=0)
    assert done.returncode == 0, done.stdout
    box = (tmp_path / "build" / "real-server.txt").read_text()
    assert done.stdout.endswith(f"{box}\n")
    assert '| [[flaky]]\n| test = "tests/e2e/test_race.py::test_race[a]"\n| seen = 20' in box
    assert '| test = "tests/e2e/test_race.py::test_race[b]"\n' in box
    assert "test_sound" not in box
    assert (tmp_path / "a").read_text() == "xx"


def test_three_failures_are_no_chance(tmp_path: Path) -> None:
    done = run(tmp_path, names=["a", "b", "c"], bad_run=0)
    assert done.returncode == 1
    assert (tmp_path / "build" / "real-server.txt").read_text() == ""
    assert (tmp_path / "a").read_text() == "x"


def test_a_listed_test_runs_twenty_times_and_may_not_fail_once(tmp_path: Path) -> None:
    done = run(tmp_path, names=["a"], bad_run=13, listed=LISTED)
    assert done.returncode == 1
    assert (tmp_path / "a").read_text() == "x" * 20
    assert "test_sound" not in done.stdout.partition("tests/flaky.toml lists 1")[2]
