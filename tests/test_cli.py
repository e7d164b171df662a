"""The commands as somebody types them."""

import os
import shlex
import ssl
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest
from click.testing import CliRunner, Result

import karrot
from karrot.burrow.payload import parse_webhook
from karrot.cli import main
from karrot.event import Kind, Status
from karrot.eventlog.base import LogUnavailableError
from karrot.settings.loading import Loaded, SettingsError
from support.processes import free_port
from support.waiting import wait_for

NOW_MS = 1_763_740_800_000


def run(*arguments: str, env: dict[str, str] | None = None, typed: str = "") -> Result:
    return CliRunner().invoke(main, list(arguments), env=env, input=typed, catch_exceptions=False)


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Server(ThreadingHTTPServer):
    """Answers every request with one status and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 202
        self.seen: list[Request] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append(Request(self.command, self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(b'{"status":"told"}\n')

    do_GET = do_POST = answer  # noqa: N815 (the names http.server looks for)

    def log_message(self, *_arguments: object) -> None:
        """Not on standard error."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


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
def test_a_full_disk_is_a_sentence(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "karrot", *arguments], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"karrot: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("arguments", [["version"], ["render", "alert-rules"]], ids=" ".join)
def test_a_reader_that_left_is_no_error_message(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as broken:
        done = subprocess.run(
            [sys.executable, "-m", "karrot", *arguments], stdout=broken, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"")


def test_no_standard_output_is_no_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m karrot version >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("command", "code"),
    [("nosuch", 2), ("render --nosuch", 2), ("check-config", 2), ("healthcheck --config /nowhere/x.toml", 2)],
)
def test_an_exit_code_does_not_depend_on_who_reads_standard_error(command: str, code: int) -> None:
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


def test_the_refusal_of_another_project_has_its_exit_code_without_a_reader(tmp_path: Path) -> None:
    metadata = tmp_path / "karrot-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: karrot\nVersion: 0.1\n")
    (metadata / "RECORD").write_text("karrot/client.py,,\n")
    (tmp_path / "karrot").symlink_to(Path(karrot.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with Path("/dev/full").open("wb") as full:
        for stderr in (subprocess.PIPE, full):
            command = [sys.executable, "-m", "karrot", "version"]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, check=False)
            assert (done.returncode, done.stdout) == (2, b"")


def test_serve_runs_without_a_standard_output(tmp_path: Path) -> None:
    port = free_port()
    environment = {**os.environ, "KARROT_DATA_DIR": str(tmp_path / "data")}
    command = shlex.join([sys.executable, "-m", "karrot", "serve", "--bind", f"127.0.0.1:{port}"])
    service = subprocess.Popen(["sh", "-c", f"exec {command} >&-"], env=environment, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: run("healthcheck", env={"KARROT_BIND": f"127.0.0.1:{port}"}).exit_code == 0, 60)
    finally:
        service.terminate()
        _, said = service.communicate(timeout=30)
    assert (service.returncode, said) == (0, b"")


def test_a_karrot_that_is_still_packed_is_a_sentence(tmp_path: Path) -> None:
    packed = tmp_path / "karrot.whl"
    package = Path(karrot.__file__).parent
    with ZipFile(packed, "w") as archive:
        for path in package.rglob("*.py"):
            archive.write(path, path.relative_to(package.parent))
    for command in (["render", "alert-rules"], ["serve"]):
        arguments = [sys.executable, "-m", "karrot", *command]
        environment = {**os.environ, "PYTHONPATH": str(packed)}
        done = subprocess.run(
            arguments, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"karrot: Karrot runs from an archive, {packed}, where it cannot read its templates and pages: "
            "install it with pip install, or unpack it\n"
        )


def test_help_loads_nothing_heavy() -> None:
    script = "import sys, karrot.cli; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", script], text=True).split())
    assert not loaded & {"flask", "apsw", "jinja2", "structlog", "boto3", "karrot.settings.loading", "karrot.wiring"}


def test_every_command_has_help() -> None:
    for name, command in main.commands.items():
        assert command.help, name
        assert run(name, "--help").exit_code == 0


def test_the_list_of_commands_fits_a_terminal_of_eighty_columns() -> None:
    result = run("--help", env={"COLUMNS": "80"})
    assert "..." not in result.stdout.partition("Commands:")[2]


def test_check_config_prints_every_setting_and_the_warnings(tmp_path: Path) -> None:
    file = tmp_path / "karrot.toml"
    file.write_text('log = "DEBUG"\n')
    result = run("check-config", "--config", str(file), env={"KARROT_API_TOKEN": "hunter2", "KARROT_LOGG": "x"})
    assert result.exit_code == 0
    assert "KARROT_LOG=DEBUG\n" in result.stdout
    assert "KARROT_API_TOKEN=***\n" in result.stdout
    assert "hunter2" not in result.output
    assert result.stderr == (
        "warning: KARROT_LOGG is not a setting of Karrot: it has no effect; did you mean KARROT_LOG?\n"
        "warning: KARROT_BIND is 0.0.0.0:5000: anyone who reaches this port can post events without a password; "
        "set KARROT_BURROW_TOKEN (or KARROT_BURROW_USERNAME and KARROT_BURROW_PASSWORD), or bind to 127.0.0.1:5000\n"
    )


def test_check_config_refuses_wrong_settings_with_a_line_each() -> None:
    result = run("check-config", env={"KARROT_WORKERS": "0", "KARROT_LOG": "LOUD"})
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "karrot: KARROT_LOG is 'LOUD': it must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL\n"
        "karrot: KARROT_WORKERS is '0': it must be a whole number from 1 to 64\n"
    )


def test_burrow_config_prints_toml() -> None:
    result = run("burrow-config", "--url", "http://karrot:5000", "--user", "burrow")
    assert result.exit_code == 0
    assert tomllib.loads(result.stdout)["notifier"]["karrot"]["username"] == "burrow"


def test_burrow_config_prints_the_template_alone() -> None:
    result = run("burrow-config", "--url", "http://karrot:5000", "--template")
    assert result.stdout == '{"Event": {{ jsonencoder . }}}\n'


def test_an_address_that_is_none_is_refused_in_one_line() -> None:
    for command in ("burrow-config", "send-sample", "healthcheck"):
        result = run(command, "--url", "karrot:5000")
        assert (result.exit_code, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
        assert "'karrot:5000': it must be an http:// or https:// address" in result.stderr


@pytest.mark.parametrize(
    ("status", "kind"), [("OK", Kind.OBSERVATION), ("WARN", Kind.INCIDENT), ("ERR", Kind.INCIDENT)]
)
def test_a_sample_is_an_event_as_burrow_posts_it(server: Server, status: str, kind: Kind) -> None:
    result = run("send-sample", "--url", server.url, "--status", status, "--count", "2")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f'karrot-sample sample-group-{number} {status}: 202 {{"status":"told"}}' for number in (1, 2)
    ]
    assert [(each.method, each.path) for each in server.seen] == [("POST", "/burrow")] * 2
    assert server.seen[0].headers["Content-Type"] == "application/json"
    events = [parse_webhook(each.body, observed_at_ms=NOW_MS) for each in server.seen]
    assert [each.consumer for each in events] == ["sample-group-1", "sample-group-2"]
    assert {(each.status, each.kind) for each in events} == {(Status[status], kind)}
    assert events[0].max_lag is not None


def test_a_sample_carries_credentials_that_are_not_arguments(server: Server, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    file = str(tmp_path / "secret")
    run("send-sample", "--url", server.url, "--user", "burrow", env={"KARROT_BURROW_PASSWORD": "hunter2"})
    run("send-sample", "--url", server.url, "--user", "burrow", typed="hunter2\n")
    run("send-sample", "--url", server.url, env={"KARROT_BURROW_TOKEN": "hunter2"})
    run("send-sample", "--url", server.url, "--user", "burrow", env={"KARROT_BURROW_PASSWORD_FILE": file})
    run("send-sample", "--url", server.url, env={"KARROT_BURROW_TOKEN_FILE": file})
    run("send-sample", "--url", server.url)
    basic = "Basic YnVycm93Omh1bnRlcjI="
    assert [each.headers.get("Authorization") for each in server.seen] == [
        *(basic, basic, "Bearer hunter2"),
        *(basic, "Bearer hunter2", None),
    ]


def test_a_secret_s_file_that_is_not_there_is_a_sentence(server: Server) -> None:
    result = run("send-sample", "--url", server.url, env={"KARROT_BURROW_TOKEN_FILE": "/none"})
    assert (result.exit_code, server.seen) == (2, [])
    assert result.stderr == (
        "karrot: KARROT_BURROW_TOKEN_FILE names '/none', which cannot be read: No such file or directory\n"
    )


def test_without_a_terminal_a_password_is_not_asked_for(server: Server) -> None:
    command = [sys.executable, "-m", "karrot", "send-sample", "--url", server.url, "--user", "burrow"]
    asked = subprocess.run(
        command, input="hunter2\n", capture_output=True, text=True, start_new_session=True, timeout=60, check=False
    )
    assert (asked.returncode, asked.stdout, server.seen) == (2, "", [])
    assert asked.stderr == (
        "karrot: there is no terminal to ask for the password: "
        "set KARROT_BURROW_PASSWORD or KARROT_BURROW_PASSWORD_FILE\n"
    )


def test_an_address_with_the_wrong_scheme_is_told_the_other(server: Server) -> None:
    secure = server.url.replace("http:", "https:")
    assert f"does not speak TLS: is its address {server.url}?" in run("send-sample", "--url", secure).stderr
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=True)
    assert f"if it speaks TLS, its address is {secure}" in run("send-sample", "--url", server.url).stderr


def test_a_token_that_no_header_can_hold_is_refused_without_showing_it(server: Server) -> None:
    result = run("send-sample", "--url", server.url, env={"KARROT_BURROW_TOKEN": "hunter2\nX: y"})
    assert (result.exit_code, result.stderr) == (2, "karrot: a Bearer token must be printable ASCII\n")


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (400, "is something between here and Karrot changing the body?"),
        (401, "the credentials are missing or wrong"),
        (404, "is it Karrot's?"),
        (302, "Burrow would follow it without the event"),
        (503, "its /readyz says why"),
        (200, '200 {"status":"told"}'),
    ],
)
def test_a_sample_that_is_not_accepted_ends_with_what_to_do(server: Server, status: int, sentence: str) -> None:
    server.status = status
    result = run("send-sample", "--url", server.url, "--count", "5")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f'karrot: {status} {{"status":"told"}}\n' in result.stderr
    assert sentence in result.stderr
    assert len(server.seen) == 1


def test_a_karrot_that_is_not_there_is_named_in_one_line(server: Server) -> None:
    server.shutdown()  # while its thread still polls, a closed socket takes connections
    server.server_close()
    for command in ("send-sample", "healthcheck"):
        result = run(command, "--url", server.url)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"nothing listens at 127.0.0.1:{server.server_port} (connection refused)" in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_health_is_asked_of_this_machine_where_karrot_listens(server: Server) -> None:
    server.status = 200
    result = run(
        "healthcheck", env={"KARROT_BIND": f"0.0.0.0:{server.server_port}", "http_proxy": "http://127.0.0.1:1"}
    )
    assert (result.exit_code, result.stdout) == (0, '{"status":"told"}\n')
    assert [(each.method, each.path) for each in server.seen] == [("GET", "/healthz")]


def test_a_karrot_that_is_not_well_is_not_healthy(server: Server) -> None:
    server.status = 500
    result = run("healthcheck", "--url", server.url)
    assert (result.exit_code, result.stderr) == (1, 'karrot: 500: {"status":"told"}\n')


def test_serve_hands_over_what_reads_the_settings_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "karrot.toml"
    levels: list[str] = []

    def serve(load: Callable[[], Loaded]) -> int:
        for level in ("DEBUG", "ERROR"):
            file.write_text(f'log = "{level}"\nbind = "127.0.0.1:1"\n')
            settings = load().settings
            levels.append(f"{settings.log} {settings.bind}")
        file.write_text("log =")
        with pytest.raises(SettingsError):
            load()
        return 3

    monkeypatch.setattr("karrot.wiring.serve", serve)
    assert run("serve", "--config", str(file), "--bind", "127.0.0.1:2").exit_code == 3
    assert levels == ["DEBUG 127.0.0.1:2", "ERROR 127.0.0.1:2"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (SettingsError(["KARROT_LOG is wrong"]), "karrot: KARROT_LOG is wrong\n"),
        (LogUnavailableError("the data directory is in use"), "karrot: the data directory is in use\n"),
        (OSError(98, "Address already in use"), "karrot: [Errno 98] Address already in use\n"),
    ],
)
def test_what_keeps_the_service_from_starting_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    def refuse(*_arguments: object) -> int:
        raise error

    monkeypatch.setattr("karrot.wiring.serve", refuse)
    monkeypatch.setattr("karrot.demo.demo.demo", refuse)
    for command in ("serve", "demo"):
        result = run(command)
        assert (result.exit_code, result.stderr) == (2, line)


def test_the_demo_starts_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def demo(*arguments: object) -> int:
        asked.append(arguments)
        return 0

    monkeypatch.setattr("karrot.demo.demo.demo", demo)
    assert run("demo").exit_code == 0
    assert run("demo", "--port", "8000", "--groups", "3", "--seed", "1", "--speed", "2.5").exit_code == 0
    assert asked == [(None, 24, 7, 1.0), (8000, 3, 1, 2.5)]
