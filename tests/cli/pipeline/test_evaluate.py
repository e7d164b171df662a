"""``karrot pipeline evaluate`` refuses wrong options before it starts Spark."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from karrot.cli import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Kafka needs --bootstrap-servers"),
        (
            ["--bootstrap-servers=k:9092", "--to=karrot=karrot:5000"],
            "--to karrot= must be an address, such as karrot=http://karrot:5000",
        ),
        (
            ["--bootstrap-servers=k:9092", "--to=tables,karrot"],
            "--to is 'tables,karrot': it must be -, or some of karrot=URL, kafka=TOPIC and tables",
        ),
        (["--bootstrap-servers=k:9092", "--to=tables,tables"], "--to has tables twice"),
        (["--bootstrap-servers=k:9092", "--to=kafka=a topic"], "--to kafka= is 'a topic'"),
        (["--bootstrap-servers=k:9092", "--rules=colour=blue"], "'colour' is not a rule of Burrow"),
    ],
)
def test_a_wrong_option_is_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    command = ["pipeline", "evaluate", "--cluster=c", f"--tables={tmp_path}", *arguments]
    ended = CliRunner().invoke(main, command)
    assert (ended.exit_code, said in ended.output) == (2, True), ended.output
