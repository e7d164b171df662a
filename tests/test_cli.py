"""The commands on the command line."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import karrot
from karrot.cli import main
from support.karrot_command import run_karrot
from support.service.free_ports import free_port
from support.waiting import wait_for


def test_the_program_and_the_module_are_the_same() -> None:
    program = str(Path(sys.executable).with_name("karrot"))
    told = [
        subprocess.check_output(command, text=True)
        for command in ([program, "version"], [program, "--version"], [sys.executable, "-m", "karrot", "version"])
    ]
    assert told == [f"karrot {karrot.__version__}\n"] * 3


@pytest.mark.parametrize(
    "arguments",
    [["version"], ["--version"], ["--help"], ["render", "--help"], ["render", "alert-rules"], ["check-config"]],
    ids=" ".join,
)
def test_a_full_disk_gives_one_sentence(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "karrot", *arguments], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"karrot: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("arguments", [["version"], ["render", "alert-rules"]], ids=" ".join)
def test_a_closed_pipe_gives_no_error_message(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as broken:
        done = subprocess.run(
            [sys.executable, "-m", "karrot", *arguments], stdout=broken, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_missing_standard_output_is_not_an_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m karrot version >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("command", "code"),
    [("nosuch", 2), ("render --nosuch", 2), ("check-config", 2), ("healthcheck --config /nowhere/x.toml", 2)],
)
def test_an_exit_code_does_not_depend_on_a_reader_of_standard_error(command: str, code: int) -> None:
    environment = {**os.environ, "KARROT_BIND": "x"}
    arguments = [sys.executable, "-m", "karrot", *command.split()]
    reading, writing = os.pipe()
    os.close(reading)
    with Path("/dev/full").open("wb") as full, os.fdopen(writing, "wb") as broken:
        for stderr in (subprocess.PIPE, full, broken):
            done = subprocess.run(arguments, env=environment, stdout=subprocess.PIPE, stderr=stderr, check=False)
            assert (done.returncode, done.stdout) == (code, b"")
    closed = subprocess.run(["sh", "-c", f"{shlex.join(arguments)} 2>&-"], env=environment, check=False)
    assert closed.returncode == code


def test_a_warning_about_another_distribution_needs_no_reader_and_stops_nothing(tmp_path: Path) -> None:
    metadata = tmp_path / "karrot-0.1.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_text("karrot/client.py,,\n")
    (tmp_path / "karrot").symlink_to(Path(karrot.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with Path("/dev/full").open("wb") as full:
        for stderr, warning in ((subprocess.PIPE, f"karrot: 'karrot' is installed too in {tmp_path} "), (full, "")):
            command = [sys.executable, "-m", "karrot", "version"]
            done = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False
            )
            assert (done.returncode, done.stdout) == (0, f"karrot {karrot.__version__}\n")
            assert (done.stderr or "").startswith(warning)


def test_serve_runs_without_a_standard_output(tmp_path: Path) -> None:
    port = free_port()
    environment = {**os.environ, "KARROT_DATA_DIR": str(tmp_path / "data")}
    command = shlex.join([sys.executable, "-m", "karrot", "serve", "--bind", f"127.0.0.1:{port}"])
    service = subprocess.Popen(["sh", "-c", f"exec {command} >&-"], env=environment, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: run_karrot("healthcheck", env={"KARROT_BIND": f"127.0.0.1:{port}"}).exit_code == 0, 60)
    finally:
        service.terminate()
        _, said = service.communicate(timeout=30)
    assert (service.returncode, said) == (0, b"")


def test_help_imports_no_large_module() -> None:
    script = "import sys, karrot.cli; list(karrot.cli.main.commands.values()); print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", script], text=True).split())
    assert not loaded & {"flask", "apsw", "jinja2", "structlog", "boto3", "karrot.settings.loading", "karrot.wiring"}


def test_a_command_imports_no_other_command() -> None:
    script = "import sys, karrot.cli; karrot.cli.main.commands['serve']; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", script], text=True).split())
    assert {name for name in loaded if name.startswith("karrot.cli.")} == {
        "karrot.cli.errors",
        "karrot.cli.options",
        "karrot.cli.serve_demo_and_checks",
    }


def test_every_command_has_help() -> None:
    for name, command in main.commands.items():
        assert command.help, name
        assert run_karrot(name, "--help").exit_code == 0


def test_the_list_of_commands_fits_a_terminal_of_eighty_columns() -> None:
    result = run_karrot("--help", env={"COLUMNS": "80"})
    assert "..." not in result.stdout.partition("Commands:")[2]


def test_an_invalid_address_is_refused_in_one_line() -> None:
    for command in ("burrow-config", "send-sample", "healthcheck"):
        result = run_karrot(command, "--karrot", "karrot:5000")
        assert (result.exit_code, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
        assert "'karrot:5000': it must be an http:// or https:// address" in result.stderr
