"""The Makefile removes only environments that it made itself."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"


def a_link(tree: Path) -> None:
    (tree / "elsewhere").mkdir()
    (tree / ".venv").symlink_to("elsewhere")


def users_environment(tree: Path) -> None:
    (tree / ".venv" / "bin").mkdir(parents=True)


def make(tree: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    shutil.copy(MAKEFILE, tree)
    return subprocess.run(["make", *arguments], cwd=tree, capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make (Debian: apt-get install make)")
@pytest.mark.parametrize("existing", [a_link, users_environment])
def test_an_environment_that_make_did_not_create_is_refused_and_kept(
    tmp_path: Path, existing: Callable[[Path], None]
) -> None:
    tree = tmp_path / "a clone"
    tree.mkdir()
    existing(tree)
    (tree / ".venv" / "kept").write_text("mine")
    refused = make(tree, ".venv/stamps/environment")
    assert refused.returncode == 2
    assert ".venv was not made by this Makefile: move it away\n" in refused.stderr
    assert (tree / ".venv" / "kept").read_text() == "mine"


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make (Debian: apt-get install make)")
def test_an_unfinished_environment_is_made_again(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "stamps").mkdir(parents=True)
    (tmp_path / ".venv" / "half").write_text("made")
    made = make(tmp_path, ".venv/stamps/environment", "PYTHON=python3")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / ".venv" / "bin" / "python").exists()
    assert not (tmp_path / ".venv" / "half").exists()
