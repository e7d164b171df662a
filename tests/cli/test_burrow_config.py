import tomllib

from support.karrot_command import run_karrot


def test_burrow_config_prints_toml() -> None:
    result = run_karrot("burrow-config", "--url", "http://karrot:5000", "--user", "burrow")
    assert result.exit_code == 0
    assert tomllib.loads(result.stdout)["notifier"]["karrot"]["username"] == "burrow"


def test_burrow_config_prints_the_template_alone() -> None:
    result = run_karrot("burrow-config", "--url", "http://karrot:5000", "--template")
    assert result.stdout == '{"Event": {{ jsonencoder . }}}\n'
