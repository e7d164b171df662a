import pytest
from click.testing import CliRunner

from karrot.cli import main


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if Spark starts: wrong options must be reported before that."""
    monkeypatch.setattr("karrot.cli.pipeline.spark_options.started", lambda *_: pytest.fail("Spark was started"))


def _stream(*arguments: str, **env: str) -> tuple[int, str]:
    ended = CliRunner().invoke(
        main, ["pipeline", "stream", "--archive", "a", *arguments], env={"KARROT_TABLES_DIR": "t"} | env
    )
    return ended.exit_code, ended.stderr


def test_cloudwatch_is_refused_if_the_service_publishes_to_it() -> None:
    code, said = _stream(KARROT_REPORTERS="prometheus, cloudwatch", KARROT_CLOUDWATCH_METRICS="Lag,Status")
    assert code == 2
    assert said.startswith("karrot: KARROT_REPORTERS has cloudwatch, so the service publishes to CloudWatch already")
    assert _stream(KARROT_COMPAT="2019") == (2, said)


def test_the_command_reads_and_checks_the_settings_of_the_service() -> None:
    code, said = _stream(KARROT_CLOUDWATCH_INTERVAL="soon")
    assert code == 2
    assert "KARROT_CLOUDWATCH_INTERVAL" in said


def test_tables_at_a_url_of_hadoop_are_accepted_though_the_service_refuses_them() -> None:
    code, said = _stream(KARROT_CLOUDWATCH_INTERVAL="soon", KARROT_TABLES_DIR="hdfs://lag/tables")
    assert (code, said) == _stream(KARROT_CLOUDWATCH_INTERVAL="soon")
