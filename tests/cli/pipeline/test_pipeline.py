import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException

from karrot.cli import main
from karrot.cli.pipeline import pipeline
from karrot.pipeline.store.table_files import OtherFormat


def _run(*arguments: str, env: dict[str, str | None]) -> tuple[int, str]:
    ended = CliRunner().invoke(main, ["pipeline", "run", "--archive", "a", "--tables", "t", *arguments], env=env)
    return ended.exit_code, ended.stderr


def test_a_machine_without_java_gets_the_package_to_install(tmp_path: Path) -> None:
    assert _run(env={"JAVA_HOME": None, "PATH": str(tmp_path), "PYSPARK_GATEWAY_PORT": None}) == (
        2,
        (
            "karrot: Spark needs Java 17 or newer (Debian: default-jre-headless), and there is no java on the PATH: "
            "install Java.\n"
        ),
    )


@pytest.mark.parametrize(
    ("told", "said"), [('openjdk version "11.0.2"', "is version 11"), ("what?", "does not print its version")]
)
def test_an_old_java_is_refused(tmp_path: Path, told: str, said: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    java.chmod(0o755)
    assert _run(env={"JAVA_HOME": str(tmp_path), "PYSPARK_GATEWAY_PORT": None}) == (
        2,
        f"karrot: Spark needs Java 17 or newer, and {java} {said}: set JAVA_HOME to a newer Java.\n",
    )


def test_a_spark_setting_must_be_a_pair() -> None:
    code, said = _run("--conf", "spark.x", env={})
    assert code == 2
    assert "'spark.x' is not KEY=VALUE" in said


@pytest.mark.parametrize(
    "command",
    [
        "run --archive a",
        "offsets --cluster c --bootstrap-servers 127.0.0.1:9",
        "offsets --cluster c --bootstrap-servers 127.0.0.1:9 --judge stale --to webhook=http://127.0.0.1:9",
    ],
)
def test_a_machine_without_pyspark_gets_the_package_to_install(command: str) -> None:
    program = "import sys; sys.modules['pyspark'] = None; from karrot.cli import main; main()"
    asked = ["pipeline", *command.split(), "--tables", "t"]
    environ = {name: text for name, text in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"}
    done = subprocess.run(
        [sys.executable, "-c", program, *asked], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        2,
        "karrot: The pipeline runs on PySpark, which is not installed: pip install 'karrot-burrow[spark]'.\n",
    )


@pytest.mark.parametrize("command", ["run --archive a --tables t", "offsets --cluster c --tables t"])
def test_an_interval_that_is_no_duration_is_refused_before_spark_starts(command: str) -> None:
    done = CliRunner().invoke(main, ["pipeline", *command.split(), "--every", "often"])
    assert (done.exit_code, done.stderr) == (
        2,
        "karrot: --every is 'often': it must be seconds, or a number with s, m, h or d, from 1s to 24h\n",
    )


def test_ctrl_c_gives_one_line_and_the_usual_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_asked: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline.commands["run"], "callback", interrupted)
    assert _run(env={}) == (130, "karrot: interrupted\n")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "--source archive needs --archive"),
        (["--source", "kafka"], "Kafka needs --bootstrap-servers"),
        (["--source", "kafka", "--bootstrap-servers", "a"], "--bootstrap-servers is 'a': it must be HOST:PORT"),
        (
            ["--source", "kafka", "--bootstrap-servers", "a:1", "--topic", "a b"],
            "--topic is 'a b': it must be the name",
        ),
    ],
)
def test_wrong_source_options_are_refused_before_spark_starts(asked: list[str], said: str) -> None:
    ended = CliRunner().invoke(main, ["pipeline", "run", "--tables", "t", *asked])
    assert (ended.exit_code, ended.stderr.startswith(f"karrot: {said}")) == (2, True), ended.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("run --once --day 9999-12-31", "--day is 9999-12-31: it must be from 1970 to 9998"),
        ("run --once --day 2026-11-20 --day 0001-01-01", "--day is 0001-01-01: it must be from 1970 to 9998"),
        ("run --longest-gap 25h", "--longest-gap is '25h': it must be"),
        ("run --max-lag-seconds nan", "'--max-lag-seconds': nan is not a finite number"),
        ("run --objective nan", "'--objective': nan is not a finite number"),
        ("run --tables=", "--tables is '': it must be a directory, s3://bucket/prefix or another URL"),
    ],
)
def test_wrong_numbers_and_days_are_refused_before_spark_starts(command: str, said: str) -> None:
    name, *asked = command.split()
    ended = CliRunner().invoke(main, ["pipeline", name, "--tables", "t", *asked])
    assert (ended.exit_code, said in ended.stderr) == (2, True), ended.stderr


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        pytest.param(
            PermissionError(13, "Permission denied", "t/_derived.json"),
            "[Errno 13] Permission denied: 't/_derived.json'",
            id="a file that the user may not read",
        ),
        pytest.param(
            AnalysisException("[UNABLE_TO_INFER_SCHEMA] Unable to infer.\n\tat a.stack"),
            "[UNABLE_TO_INFER_SCHEMA] Unable to infer.",
            id="a table without a schema",
        ),
        pytest.param(AnalysisException(""), "AnalysisException", id="an error without a message"),
        pytest.param(OtherFormat("a newer Karrot wrote t"), "a newer Karrot wrote t", id="tables of a newer Karrot"),
    ],
)
def test_an_unusable_file_or_table_is_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, failed: Exception, said: str
) -> None:
    def fails(**_asked: object) -> None:
        raise failed

    monkeypatch.setattr(pipeline.commands["run"], "callback", fails)
    ended = CliRunner().invoke(main, ["pipeline", "run", "--tables", "t"])
    assert (ended.exit_code, ended.stderr) == (1, f"karrot: {said}\n")


def test_every_command_reads_the_setting_for_the_tables_that_pages_and_history_read() -> None:
    commands = pipeline.commands.values()
    tables = [each for command in commands for each in command.params if each.opts == ["--tables"]]
    assert [each.envvar for each in tables] == ["KARROT_TABLES_DIR"] * len(commands)


@pytest.mark.parametrize(
    ("word", "new"),
    [
        ("ingest", "karrot pipeline run --once --only events"),
        ("evaluate", "karrot pipeline offsets --judge burrow"),
        ("report", "karrot history report"),
    ],
)
def test_a_word_of_an_earlier_release_is_refused_with_the_new_call(word: str, new: str) -> None:
    # The options can contain secrets.
    ended = CliRunner().invoke(main, ["pipeline", word, "--conf", "spark.hadoop.fs.s3a.secret.key=hush"])
    assert (ended.exit_code, ended.stderr) == (2, f"karrot: karrot pipeline {word} is replaced. Now: {new}\n")
    assert word not in pipeline.commands


_INTERRUPTED_AT_THE_START = """
import logging, os, signal, sys
from karrot.cli import main
from karrot.pipeline import spark_session

number = int(sys.argv.pop())

def starts(*_args, **_named):
    logging.getLogger("py4j.clientserver").error("Exception while sending command.")
    try:
        os.kill(os.getpid(), number)
        signal.pause()
    finally:
        print("unwound: a JVM that is being started would never end")

spark_session.session = starts
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_while_spark_starts_ends_the_process_and_its_java(number: signal.Signals) -> None:
    command = [
        sys.executable,
        "-c",
        _INTERRUPTED_AT_THE_START,
        "pipeline",
        "run",
        "--only",
        "derive",
        "--tables",
        "t",
        str(int(number)),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", "karrot: interrupted\n")
