"""Each command has a man page that groff and man accept."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from karrot import __version__, cli

ROOT = Path(__file__).resolve().parents[2]


def names(group: click.Group, path: str) -> Iterator[str]:
    yield path
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from names(command, f"{path}-{name}")
        elif not command.hidden:
            yield f"{path}-{name}"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("man") / "man1"
    command = [sys.executable, str(ROOT / "tools" / "man_pages.py"), str(folder)]
    subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1795651200"})
    return {path.stem: path for path in folder.iterdir()}


def test_each_command_has_a_page_with_the_version_and_a_fixed_date(pages: dict[str, Path]) -> None:
    assert set(pages) == set(names(cli.main, "karrot"))
    for page in pages.values():
        head = page.read_text(encoding="utf-8").splitlines()[0]
        assert f'"1" "2026-11-26" "{__version__}"' in head


def test_the_name_of_a_page_has_a_whole_sentence(pages: dict[str, Path]) -> None:
    for page in pages.values():
        [*_, name] = page.read_text(encoding="utf-8").partition(".SH SYNOPSIS")[0].splitlines()
        assert name.endswith("."), name
        assert not name.endswith("..."), name


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff (Debian: apt-get install groff)")
def test_groff_has_no_warning(pages: dict[str, Path]) -> None:
    command = ["groff", "-k", "-z", "-ww", "-man", "-Tutf8"]
    assert {
        name: said
        for name, page in pages.items()
        if (said := subprocess.run([*command, page], capture_output=True, text=True, check=True).stderr)
    } == {}


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man-db (Debian: apt-get install man-db)")
def test_man_shows_the_options_of_a_command(pages: dict[str, Path]) -> None:
    environ = {**os.environ, "MANWIDTH": "100", "MAN_KEEP_FORMATTING": "", "LC_ALL": "C.UTF-8"}
    command = ["man", "--local-file", str(pages["karrot-pipeline-run"])]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout
    assert "karrot-pipeline-run - Keep the tables up to date, in turns or once." in shown
    assert "--compact-at HH:MM|never" in shown
