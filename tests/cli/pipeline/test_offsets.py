from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from karrot.cli import main
from karrot.watch.kafka_admin import KafkaCluster

_KAFKA = ["--source", "kafka", "--bootstrap-servers", "localhost:1"]
_FILES = ["--source", "parquet", "--input", "there"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--source", "kafka"], "Kafka needs --bootstrap-servers"),
        (["--source", "parquet"], "--source parquet needs --input"),
        ([*_FILES, "--json-topic", "t"], "--json-topic needs --source kafka"),
        pytest.param(
            ["--source", "kafka", "--bootstrap-servers", "localhost"],
            "--bootstrap-servers",
            id="a broker without a port",
        ),
        ([*_KAFKA, "--starting", "yesterday"], "'yesterday' is not a start: write earliest, latest or"),
        pytest.param([*_KAFKA, "--ends-every", "often"], "--ends-every", id="an interval that is not a duration"),
        ([*_KAFKA, "--every", "often"], "--every is 'often': it must be seconds, or a number with s, m, h or d"),
        ([*_KAFKA, "--input", "there"], "--input needs --source parquet"),
        ([*_KAFKA, "--ends-input", "there"], "--ends-input needs --source parquet"),
        pytest.param(
            ["--source", "kafka", "--bootstrap-servers", "k:65536"],
            "with ports from 1 to 65535",
            id="a port above 65535",
        ),
        pytest.param(
            [*_KAFKA, "--command-config", "{directory}/kerberos"],
            "use PlainLoginModule",
            id="a login module of Kerberos",
        ),
        ([*_KAFKA, "--command-config", "{directory}/librdkafkas"], "sasl.password is a property of librdkafka"),
        pytest.param([*_KAFKA, "--command-config", "{directory}/none"], "cannot be read", id="a file that is missing"),
    ],
)
def test_wrong_options_are_reported_before_spark_starts(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "librdkafkas").write_text("sasl.password=hunter2")
    (tmp_path / "kerberos").write_text('sasl.jaas.config=Krb5LoginModule required password="hunter2";')
    given = [each.format(directory=tmp_path) for each in arguments]
    command = ["pipeline", "offsets", "--cluster", "c", "--tables", "t", *given]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert said in done.output
    assert "hunter2" not in done.output


def test_brokers_that_do_not_answer_are_named_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = partial(KafkaCluster, {"bootstrap.servers": "localhost:1"}, timeout_s=0.2)
    monkeypatch.setattr("karrot.watch.cluster_interface.connect", lambda *_, **__: hasty())
    done = CliRunner().invoke(main, ["pipeline", "offsets", "--cluster", "c", "--tables", "t", *_KAFKA])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("karrot: Kafka at localhost:1 does not answer: ")
    assert done.stderr.count("\n") == 1
