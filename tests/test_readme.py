"""The commands and outputs in the README are correct."""

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from karrot.cli import main
from support.service.karrot_service import Service
from tools.public_addresses import public_addresses

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl (Debian: apt-get install curl)")
def test_the_posted_event_gives_the_shown_metrics(tmp_path: Path) -> None:
    [commands] = [block for block in blocks("shell") if "curl -sS" in block]
    [shown] = blocks("text")
    with Service(tmp_path / "data") as service:
        here = commands.replace("127.0.0.1:5000", f"127.0.0.1:{service.port}")
        ran = subprocess.run(["bash", "-ec", here], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == shown


def test_the_commands_and_targets_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = {word for block in blocks("shell") for word in re.findall(r"^karrot (\S+)", block, re.MULTILINE)}
    targets = {word for block in blocks("shell") for word in re.findall(r"^make (\S+)", block, re.MULTILINE)}
    assert isinstance(main, click.Group)
    assert commands <= set(main.commands)
    assert targets == {word for word in targets if re.search(rf"^{word}:", makefile, re.MULTILINE)}


def test_the_clone_command_names_the_repository_of_the_project() -> None:
    assert f"git clone {public_addresses(ROOT).repository} && cd karrot\n" in README


def test_the_links_in_the_readme_lead_to_files() -> None:
    for page in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        missing = [link for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text) if not (ROOT / link).exists()]
        assert not missing, page
