import pytest
from click.testing import CliRunner

from karrot.cli import main


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with the question is said before Spark is started."""
    monkeypatch.setattr("karrot.cli.pipeline.stream.started", lambda *_: pytest.fail("Spark was started"))


def _stream(*arguments: str, **env: str) -> tuple[int, str]:
    ended = CliRunner().invoke(main, ["pipeline", "stream", "--archive", "a", *arguments], env=env)
    return ended.exit_code, ended.stderr


def test_what_the_service_publishes_is_not_published_again() -> None:
    code, said = _stream(KARROT_REPORTERS="prometheus, cloudwatch", KARROT_CLOUDWATCH_METRICS="Lag,Status")
    assert code == 2
    assert said.startswith("karrot: KARROT_REPORTERS has cloudwatch, so the service publishes what this would")
    assert _stream(KARROT_COMPAT="2019") == (2, said)


def test_the_settings_are_those_of_the_service_and_are_checked_alike() -> None:
    code, said = _stream(KARROT_CLOUDWATCH_INTERVAL="soon")
    assert code == 2
    assert "KARROT_CLOUDWATCH_INTERVAL" in said


def test_tables_at_a_url_are_no_setting_of_the_service_that_is_checked_here() -> None:
    code, said = _stream(KARROT_CLOUDWATCH_INTERVAL="soon", KARROT_TABLES_DIR="s3a://lag/tables")
    assert (code, said) == _stream(KARROT_CLOUDWATCH_INTERVAL="soon")


def test_a_destination_that_nobody_knows_is_refused() -> None:
    for asked in ("tables,s3", ",", ""):
        assert _stream("--to", asked) == (2, f"karrot: --to is {asked!r}: it names tables, cloudwatch, or both\n")


def test_without_an_archive_nobody_can_guess_where_the_tables_are() -> None:
    asked = ["pipeline", "stream", "--to", "tables", "--source", "kafka", "--bootstrap-servers", "a:1"]
    ended = CliRunner().invoke(main, asked, env={"KARROT_TABLES_DIR": ""})
    assert (ended.exit_code, ended.stderr) == (
        2,
        "karrot: --source kafka needs --tables: there is no archive that they could lie beside\n",
    )
