"""`karrot serve`, `demo`, `check-config`, `healthcheck` and `burrow-config` on the command line."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from karrot.eventlog.base import LogUnavailableError
from karrot.settings.loading import Loaded, SettingsError
from support.karrot_command import run_karrot
from support.servers.recording_server import RecordingServer


def test_serve_passes_on_the_function_that_reloads_the_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
    assert run_karrot("serve", "--config", str(file), "--bind", "127.0.0.1:2").exit_code == 3
    assert levels == ["DEBUG 127.0.0.1:2", "ERROR 127.0.0.1:2"]


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (SettingsError(["KARROT_LOG is wrong"]), 2, "karrot: KARROT_LOG is wrong\n"),
        (LogUnavailableError("the data directory is in use"), 75, "karrot: the data directory is in use\n"),
        (OSError(98, "Address already in use"), 75, "karrot: [Errno 98] Address already in use\n"),
    ],
)
def test_a_failed_start_of_the_service_is_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, line: str
) -> None:
    def refuse(*_arguments: object) -> int:
        raise error

    monkeypatch.setattr("karrot.wiring.serve", refuse)
    monkeypatch.setattr("karrot.demo.demo.demo", refuse)
    for command in ("serve", "demo"):
        result = run_karrot(command)
        assert (result.exit_code, result.stderr) == (code, line)


def test_the_demo_starts_with_the_given_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def demo(*arguments: object) -> int:
        asked.append(arguments)
        return 0

    monkeypatch.setattr("karrot.demo.demo.demo", demo)
    assert run_karrot("demo").exit_code == 0
    assert run_karrot("demo", "--port", "8000", "--groups", "3", "--seed", "1", "--speed", "2.5").exit_code == 0
    assert asked == [(None, 24, 7, 1.0), (8000, 3, 1, 2.5)]


def test_check_config_prints_every_setting_and_the_warnings(tmp_path: Path) -> None:
    file = tmp_path / "karrot.toml"
    file.write_text('log = "DEBUG"\n')
    result = run_karrot("check-config", "--config", str(file), env={"KARROT_API_TOKEN": "hunter2", "KARROT_LOGG": "x"})
    assert result.exit_code == 0
    assert "KARROT_LOG=DEBUG\n" in result.stdout
    assert "KARROT_API_TOKEN=***\n" in result.stdout
    assert "hunter2" not in result.output
    assert result.stderr == (
        "warning: KARROT_LOGG is not a setting of Karrot: it has no effect; did you mean KARROT_LOG?\n"
        "warning: KARROT_BIND is 0.0.0.0:5000: anyone who reaches this port can post events without a password; "
        "set KARROT_BURROW_TOKEN (or KARROT_BURROW_USERNAME and KARROT_BURROW_PASSWORD), or bind to 127.0.0.1:5000\n"
    )


def test_check_config_reads_the_file_in_the_environment_and_names_the_source_of_each_value(tmp_path: Path) -> None:
    file, other = tmp_path / "karrot.toml", tmp_path / "other.toml"
    file.write_text('log = "DEBUG"\nthreads = 7\napi_token = "hunter2"\n')
    file.chmod(0o600)
    other.write_text('log = "ERROR"\n')
    env = {"KARROT_CONFIG": str(file), "KARROT_THREADS": "9"}
    result = run_karrot("check-config", "--sources", env=env)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert f"KARROT_LOG=DEBUG  # log in {file}" in lines
    assert "KARROT_THREADS=9  # environment" in lines
    assert "KARROT_WORKERS=2  # default" in lines
    assert f"KARROT_API_TOKEN=***  # api_token in {file}" in lines
    chosen = run_karrot("check-config", "--config", str(other), env=env)
    assert "KARROT_LOG=ERROR" in chosen.stdout.splitlines()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "the configuration file {file} cannot be read: No such file or directory"),
        ("log = \n", "the configuration file {file} is not TOML: Invalid value (at line 1, column 7)"),
        ("workers = true\n", "workers in {file} is 'true': it must be a whole number from 1 to 64"),
        ("workerz = 2\n", "workerz in {file} is not a setting of Karrot; did you mean workers?"),
    ],
    ids=["missing", "not TOML", "a wrong type", "an unknown name"],
)
def test_a_wrong_file_in_the_environment_is_refused(tmp_path: Path, content: str | None, sentence: str) -> None:
    file = tmp_path / "karrot.toml"
    if content is not None:
        file.write_text(content)
    for command in ("check-config", "serve"):
        result = run_karrot(command, env={"KARROT_CONFIG": str(file)})
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"karrot: {sentence.format(file=file)}\n"


def test_check_config_refuses_wrong_settings_with_one_line_each() -> None:
    result = run_karrot("check-config", env={"KARROT_WORKERS": "0", "KARROT_LOG": "LOUD"})
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "karrot: KARROT_LOG is 'LOUD': it must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL\n"
        "karrot: KARROT_WORKERS is '0': it must be a whole number from 1 to 64\n"
    )


def test_healthcheck_asks_this_machine_at_karrots_port(server: RecordingServer) -> None:
    server.status = 200
    result = run_karrot(
        "healthcheck", env={"KARROT_BIND": f"0.0.0.0:{server.server_port}", "http_proxy": "http://127.0.0.1:1"}
    )
    assert (result.exit_code, result.stdout) == (0, '{"status":"told"}\n')
    assert [(each.method, each.path) for each in server.seen] == [("GET", "/healthz")]


def test_healthcheck_fails_if_karrot_reports_a_problem(server: RecordingServer) -> None:
    server.status = 500
    result = run_karrot("healthcheck", "--karrot", server.url)
    assert (result.exit_code, result.stderr) == (1, 'karrot: 500: {"status":"told"}\n')


def test_burrow_config_prints_toml() -> None:
    result = run_karrot("burrow-config", "--karrot", "http://karrot:5000", "--user", "burrow")
    assert result.exit_code == 0
    assert tomllib.loads(result.stdout)["notifier"]["karrot"]["username"] == "burrow"
    assert "set allowed-lag = 1 in the section [evaluator.NAME]" in result.stdout


def test_burrow_config_can_print_only_the_template() -> None:
    result = run_karrot("burrow-config", "--karrot", "http://karrot:5000", "--template")
    assert result.stdout == '{"Event": {{ jsonencoder . }}}\n'
