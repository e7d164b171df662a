"""A shell completes the commands, the options and the values of options, as docs/operations.md says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
LINES = dict(
    re.findall(r"^\| (Bash|zsh|fish)[^|]*\| [^|]+ \| `(.+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
)
ENVIRON = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def completed(*words: str) -> list[str]:
    """Return what Bash offers for the last word, after the line of the documentation."""
    script = f"""
    {LINES["Bash"]}
    complete -p karrot >/dev/null || exit 1
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _karrot_completion karrot
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    command = ["bash", "--norc", "-c", script, "bash", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRON).stdout.split()


def test_bash_completes_a_command() -> None:
    assert completed("karrot", "he") == ["healthcheck"]
    assert completed("karrot", "history", "in") == ["incidents"]


def test_bash_completes_an_option_by_its_present_name_alone() -> None:
    assert completed("karrot", "watch", "--co") == ["--command-config"]
    assert completed("karrot", "watch", "--prop") == []


def test_bash_completes_the_values_of_an_option() -> None:
    assert completed("karrot", "render", "ecs-autoscaling", "--recipe", "") == ["target-tracking", "step", "from-zero"]


@pytest.mark.parametrize(
    ("shell", "registers"), [("zsh", "compdef _karrot_completion karrot"), ("fish", "--command karrot")]
)
def test_the_documented_line_of_another_shell_reads_a_script_for_it(shell: str, registers: str) -> None:
    """These shells are not on every machine, so only the script is looked at."""
    [setting] = re.findall(r"_KARROT_COMPLETE=\w+", LINES[shell])
    name, _, value = setting.partition("=")
    said = subprocess.run(["karrot"], capture_output=True, text=True, check=True, env={**ENVIRON, name: value}).stdout
    assert registers in said
