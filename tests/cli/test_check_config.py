from pathlib import Path

from support.karrot_command import run_karrot


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


def test_check_config_refuses_wrong_settings_with_a_line_each() -> None:
    result = run_karrot("check-config", env={"KARROT_WORKERS": "0", "KARROT_LOG": "LOUD"})
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "karrot: KARROT_LOG is 'LOUD': it must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL\n"
        "karrot: KARROT_WORKERS is '0': it must be a whole number from 1 to 64\n"
    )
