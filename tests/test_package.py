"""The tested package has each file of the checkout, and its command. ``make test-wheel`` tests the built wheel so."""

import subprocess
import sys
from pathlib import Path

import pytest

import karrot
from karrot.render.jinja_templates import runbooks_dir, templates_dir

_CHECKOUT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("source", "shipped"),
    [("karrot", Path(karrot.__file__).parent), ("templates", templates_dir()), ("docs/runbooks", runbooks_dir())],
    ids=["modules", "templates", "runbooks"],
)
def test_no_file_is_missing_or_changed(source: str, shipped: Path) -> None:
    files = [path for path in (_CHECKOUT / source).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    there = {path: shipped / path.relative_to(_CHECKOUT / source) for path in files}
    assert there
    assert [str(path) for path in there.values() if not path.is_file()] == []
    assert [str(there[path]) for path in files if there[path].read_bytes() != path.read_bytes()] == []


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("karrot")
    printed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert printed.split()[-1] == karrot.__version__
