from collections.abc import Callable
from pathlib import Path

import pytest

from karrot.eventlog.base import LogUnavailableError
from karrot.settings.loading import Loaded, SettingsError
from support.karrot_command import run_karrot


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
    assert run_karrot("serve", "--config", str(file), "--bind", "127.0.0.1:2").exit_code == 3
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
        result = run_karrot(command)
        assert (result.exit_code, result.stderr) == (2, line)
