"""The options and the errors of ``karrot pipeline run``, without Spark."""

import socket
from datetime import time
from typing import Any

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
    assert _run() == (2, "karrot: --source archive needs --archive\n")
    assert _run(*archive, "--offsets", "prod") == (2, "karrot: Kafka needs --bootstrap-servers\n")
    assert _run(*archive, "--json-topic", "lag") == (2, "karrot: --json-topic needs --offsets\n")
    code, said = _run(*archive, "--compact-at", "24:00")
    assert (code, said.splitlines()[-1]) == (
        2,
        "Error: Invalid value for '--compact-at': '24:00' is not a time: write HH:MM or never",
    )
    assert _run(*archive, "--every", "0s")[0] == 2


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = _run("--archive", "a", "--metrics-port", str(port))
    assert (code, said) == (2, f"karrot: --metrics-port {port}: Address already in use\n")


@pytest.mark.parametrize(("text", "read"), [("02:30", time(2, 30)), ("23:59", time(23, 59)), ("never", None)])
def test_the_time_of_the_compaction_is_read(text: str, read: time | None) -> None:
    [option] = [each for each in run.run.params if each.name == "compact_at"]
    above = main.make_context("karrot", ["pipeline"])  # a command takes its option for help from the command above
    context = run.run.make_context("run", ["--tables", "t"], parent=above)
    assert option.process_value(context, text) == read


ASKED = {"cluster": None, "source": "archive"}


@pytest.mark.parametrize(
    ("step", "error", "failure"),
    [
        ("ingest", ClusterError("timeout", "timed out"), StepFailure("source_away", "Kafka: timed out")),
        ("ingest", NoRecords("no topic"), StepFailure("source_away", "no topic")),
        ("ingest", FileNotFoundError("no archive"), StepFailure("source_away", "no archive")),
        ("derive", FileNotFoundError("no file"), StepFailure("failed", "no file")),
        ("derive", OSError("events is empty"), StepFailure("failed", "events is empty")),
        ("derive", OSError(28, "No space left"), StepFailure("disk_full", "[Errno 28] No space left")),
        ("derive", LeaseHeld("run on pod-1 writes"), StepFailure("lease_held", "run on pod-1 writes")),
        ("derive", KeyError("day"), StepFailure("failed", "KeyError: 'day'")),
        (
            "offsets",
            PropertiesError("unknown name"),
            StepFailure("failed", "unknown name", is_final=True),
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
