"""The options and the errors of ``karrot pipeline run``, without Spark."""

import re
import socket
from datetime import time
from typing import Any

import click
import pytest
from click.testing import CliRunner

from karrot.cli import main
from karrot.cli.pipeline import run
from karrot.kafka.client_properties import PropertiesError
from karrot.pipeline.run.step_loop import StepFailure
from karrot.pipeline.store.write_lease import LeaseHeld
from karrot.pipeline.stream.record_sources import NoRecords
from karrot.watch.cluster_interface import ClusterError


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if Spark starts: wrong options must be reported before that."""
    monkeypatch.setattr("karrot.cli.pipeline.spark_options.started", lambda *_: pytest.fail("Spark was started"))


def _run(*arguments: str) -> tuple[int, str]:
    ended = CliRunner().invoke(main, ["pipeline", "run", "--tables", "t", *arguments])
    return ended.exit_code, ended.stderr


def test_wrong_options_are_refused_before_spark_starts() -> None:
    archive = ("--archive", "a")
    no_archive = "--source archive needs --archive. To read no events, choose other steps: --only derive,compact"
    assert _run() == (2, f"karrot: {no_archive}\n")
    assert _run(*archive, "--topic", "lag") == (2, "karrot: --topic needs --source kafka\n")
    assert _run(*archive, "--offsets", "prod") == (2, "karrot: Kafka needs --bootstrap-servers\n")
    assert _run(*archive, "--json-topic", "lag") == (2, "karrot: --json-topic needs --offsets\n")
    code, said = _run(*archive, "--compact-at", "24:00")
    assert (code, said.splitlines()[-1]) == (
        2,
        "Error: Invalid value for '--compact-at': '24:00' is not a time: write HH:MM or never",
    )
    assert _run(*archive, "--every", "0s")[0] == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("--only derive --archive a", "--archive needs the step events"),
        ("--only events,derive --archive a --keep 3d", "--keep needs the step compact"),
        ("--only offsets", "--only offsets needs --offsets NAME"),
        ("--only offsets --offsets prod", "Kafka needs --bootstrap-servers"),
        ("--only derive --offsets prod", "--offsets needs the step offsets"),
        ("--archive a --ends-every 5s", "--ends-every needs --offsets"),
        ("--only report", "--only report needs --report FILE"),
        ("--only derive --day 2026-11-20", "--day needs --once"),
    ],
)
def test_an_option_of_a_step_that_does_not_run_is_refused(asked: str, said: str) -> None:
    assert _run(*asked.split()) == (2, f"karrot: {said}\n")


def test_a_report_of_tables_in_hdfs_is_refused_before_spark_starts() -> None:
    code, said = _run("--only", "report", "--report", "r.html", "--tables", "hdfs:///lag")
    assert (code, said.partition(":")[2].partition(" or ")[0]) == (
        2,
        " with --report, --tables is 'hdfs:///lag': it must be a path,",
    )


def test_an_unknown_step_is_refused_with_the_known_ones() -> None:
    code, said = _run("--only", "derive,ingest")
    assert (code, said.splitlines()[-1]) == (
        2,
        "Error: Invalid value for '--only': 'ingest' is no step: write events, offsets, derive, compact, report",
    )


@pytest.mark.parametrize(
    ("asked", "steps"),
    [
        ("", ["events", "derive", "compact"]),
        ("--compact-at never", ["events", "derive"]),
        ("--report r.html --offsets prod", ["events", "offsets", "derive", "compact", "report"]),
        ("--only compact --only events,derive --once", ["events", "derive", "compact"]),
        ("--only derive,compact --compact-at never", ["derive"]),
        ("--only compact --compact-at never --once", ["compact"]),
    ],
)
def test_the_steps_run_in_one_order_however_they_are_chosen(asked: str, steps: list[str]) -> None:
    context = _context(*asked.split())
    assert run._chosen(context, context.params) == steps


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = _run("--archive", "a", "--metrics-port", str(port))
    assert (code, said) == (75, f"karrot: --metrics-port {port}: Address already in use\n")


@pytest.mark.parametrize(("text", "read"), [("02:30", time(2, 30)), ("23:59", time(23, 59)), ("never", None)])
def test_the_time_of_the_compaction_is_read(text: str, read: time | None) -> None:
    [option] = [each for each in run.run.params if each.name == "compact_at"]
    assert option.process_value(_context(), text) == read


def _context(*arguments: str) -> click.Context:
    above = main.make_context("karrot", ["pipeline"])  # a command takes its option for help from the command above
    return run.run.make_context("run", ["--tables", "t", *arguments], parent=above)


def test_the_help_has_the_options_of_each_step_in_a_section() -> None:
    text = CliRunner().invoke(main, ["pipeline", "run", "--help"]).stdout
    [section] = [each for each in text.split("\n\n") if each.startswith("The step compact ")]
    assert re.findall(r"^  (--[\w-]+)", section, re.MULTILINE) == ["--compact-at", "--keep"]
    assert not {name for _, names in run._STEPS.values() for name in names} - {each.name for each in run.run.params}


ASKED = {"bootstrap_servers": ["k:9092"]}


@pytest.mark.parametrize(
    ("step", "error", "failure"),
    [
        (
            "events",
            ClusterError("timeout", "timed out"),
            StepFailure("source_away", "Kafka at k:9092 does not answer: timed out"),
        ),
        ("events", NoRecords("no topic"), StepFailure("source_away", "no topic", is_refused=True)),
        ("events", FileNotFoundError("no archive"), StepFailure("source_away", "no archive", is_refused=True)),
        ("derive", FileNotFoundError("no file"), StepFailure("failed", "no file", is_refused=True)),
        ("derive", OSError("events is empty"), StepFailure("failed", "events is empty")),
        (
            "derive",
            OSError(28, "No space left"),
            StepFailure(
                "disk_full",
                "[Errno 28] No space left. The disk is full: free some space and run the command again. It repeats "
                "what was not finished.",
            ),
        ),
        ("derive", LeaseHeld("run on pod-1 writes"), StepFailure("lease_held", "run on pod-1 writes")),
        ("derive", KeyError("day"), StepFailure("failed", "KeyError: 'day'")),
        (
            "offsets",
            PropertiesError("unknown name"),
            StepFailure("failed", "unknown name", is_final=True, is_refused=True),
        ),
    ],
)
def test_each_error_of_a_step_has_a_code(
    monkeypatch: pytest.MonkeyPatch, step: str, error: Exception, failure: StepFailure
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr("karrot.pipeline.run.pipeline_steps.is_alive", lambda _spark: True)
    spark: Any = None
    assert run._explained(spark, ASKED, step, error) == failure


def test_a_jvm_without_memory_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("pyspark.errors")
    monkeypatch.setattr("karrot.pipeline.run.pipeline_steps.is_alive", lambda _spark: True)
    spark: Any = None
    error = errors.PySparkException("java.lang.OutOfMemoryError: Java heap space")
    said = "OutOfMemoryError: Java heap space"
    assert run._explained(spark, ASKED, "derive", error) == StepFailure("failed", said, is_final=True)


def test_a_step_that_fails_because_spark_has_ended_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr("karrot.pipeline.run.pipeline_steps.is_alive", lambda _spark: False)
    spark: Any = None
    failure = run._explained(spark, ASKED, "derive", OSError("refused"))
    assert failure == StepFailure("failed", "Spark has ended: refused", is_final=True)
