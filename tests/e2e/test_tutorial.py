"""The commands of the tutorial run, and print the output that it shows."""

import os
import re
import signal
import subprocess
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.kafka_scripts import write_kafka_scripts
from e2e.stack.stack import Stack
from support.service.free_ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(660)]

ROOT = Path(__file__).resolve().parents[2]
MARK = "--- the next block"


class Step(NamedTuple):
    """A block of commands and the output that the page shows, or ``None`` if it shows none."""

    commands: str
    shown: str | None


def steps() -> list[Step]:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(shell|text)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    following = [*blocks[1:], ("", "")]
    return [
        Step(text, after if kind_after == "text" else None)
        for (kind, text), (kind_after, after) in zip(blocks, following, strict=True)
        if kind == "shell"
    ]


def script(places: dict[str, str]) -> str:
    """Return all blocks as one shell script with local paths and ports; it stops at the first error."""
    text = f"echo '{MARK}'\n".join(step.commands for step in steps())
    for home, here in places.items():
        assert home in text
        text = text.replace(home, here)
    return f"set -eo pipefail\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{text}"


def run(text: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run the script; no process of it keeps running."""
    command = ["bash", "-c", text]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            said, complained = shell.communicate(timeout=600)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, shell.returncode, said, complained)


def test_the_tutorial_works_word_for_word(one_broker: Stack, tmp_path: Path) -> None:
    port = free_port()
    places = {"localhost:9092": one_broker.kafka.bootstrap, "localhost:5000": f"127.0.0.1:{port}"}
    bin_directory = write_kafka_scripts(one_broker.kafka, tmp_path / "bin")
    own = {name: value for name, value in os.environ.items() if not name.startswith("KARROT_")}
    own |= {"HOME": str(tmp_path), "PATH": f"{bin_directory}:{own['PATH']}", "KARROT_BIND": f"127.0.0.1:{port}"}
    done = run(script(places), own)
    said = f"{done.stdout}\n{done.stderr}"
    log = tmp_path / "karrot-tutorial" / "karrot.log"
    assert done.returncode == 0, said + (log.read_text() if log.exists() else "")
    outputs = done.stdout.split(f"{MARK}\n")
    for step, output in zip_longest(steps(), outputs):
        assert step is not None
        assert step.shown in (None, output), step.commands
    assert not (tmp_path / "karrot-tutorial").exists()
