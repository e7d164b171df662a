from pathlib import Path

import pytest
from click.testing import CliRunner

from karrot.cli import main

_KAFKA = ["--source", "kafka", "--bootstrap-servers", "localhost:1"]
_FILES = ["--source", "parquet", "--input", "there"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--source", "kafka"], "--source kafka needs --bootstrap-servers"),
        (["--source", "parquet"], "--source parquet needs --input"),
        ([*_FILES, "--json-topic", "t"], "--json-topic is written with --source kafka alone"),
        (["--source", "kafka", "--bootstrap-servers", "localhost"], "--bootstrap-servers"),
        ([*_KAFKA, "--starting", "yesterday"], "'yesterday' is neither earliest, latest nor a moment"),
        ([*_KAFKA, "--ends-every", "often"], "--ends-every"),
        ([*_KAFKA, "--command-config", "{directory}/librdkafkas"], "sasl.password is librdkafka's name"),
        ([*_KAFKA, "--command-config", "{directory}/none"], "cannot be read"),
    ],
)
def test_what_is_asked_wrongly_is_said_before_spark_is_started(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "librdkafkas").write_text("sasl.password=hunter2")
    given = [each.format(directory=tmp_path) for each in arguments]
    command = ["pipeline", "offsets", "--cluster", "c", "--tables", "t", *given]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert said in done.output
    assert "hunter2" not in done.output
