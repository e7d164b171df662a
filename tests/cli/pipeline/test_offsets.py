from functools import partial
from pathlib import Path

import pytest
from click import Context
from click.testing import CliRunner

from karrot.cli import main
from karrot.cli.pipeline.judging import prints, read_receivers
from karrot.cli.pipeline.offsets import offsets
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
        ([*_FILES, "--judge", "stale"], "--judge needs --source kafka"),
        ([*_KAFKA, "--judge", "burrow,watch"], "'watch' is no judge: write burrow, stale"),
        ([*_KAFKA, "--to", "stdout"], "--to stdout needs --judge burrow or stale"),
        ([*_KAFKA, "--judge", "stale", "--to", "tables"], "--to tables needs --judge burrow"),
        ([*_KAFKA, "--judge", "burrow", "--to", "webhook=http://k"], "--to webhook needs --judge stale"),
        ([*_KAFKA, "--stale-for", "3m"], "--stale-for needs --judge stale"),
        ([*_KAFKA, "--judge", "burrow", "--look-back", "2d"], "--look-back needs --judge stale"),
        ([*_KAFKA, "--judge", "stale", "--rules", "intervals=5"], "--rules needs --judge burrow"),
        (
            [*_KAFKA, "--judge", "burrow", "--to", "karrot=karrot:5000"],
            "--to karrot= must be an address, such as karrot=http://karrot:5000",
        ),
        ([*_KAFKA, "--judge", "burrow", "--to", "tables,karrot"], "'karrot' is no receiver: write some of karrot=URL,"),
        ([*_KAFKA, "--judge", "burrow", "--to", "tables,tables"], "tables is there twice"),
        ([*_KAFKA, "--judge", "burrow", "--to", "kafka=a topic"], "--to kafka= is 'a topic'"),
        ([*_KAFKA, "--judge", "stale", "--to", "webhook"], "'webhook' is no receiver"),
        ([*_KAFKA, "--judge", "stale", "--to", "webhok=https://h/secret"], "'webhok=…' is no receiver: write some of"),
        (
            [*_KAFKA, "--judge", "stale", "--to", "webhook=hooks"],
            "--to webhook= must be an http:// or https:// address",
        ),
        (
            [*_KAFKA, "--judge", "stale", "--to", "webhook=https://h/a,b,tabless=x,stdout,tables"],
            "--to tables needs --judge burrow",
        ),
        ([*_KAFKA, "--judge", "burrow", "--to", "karrot=http://k,tabless"], "'karrot=…' is no receiver"),
        ([*_KAFKA, "--conf", "spark.jars=https://h/a.jar,{directory}/a.jar"], "/a.jar does not exist"),
        ([*_KAFKA, "--judge", "burrow", "--rules=colour=blue"], "'colour' is not a rule of Burrow"),
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


@pytest.fixture
def no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = partial(KafkaCluster, {"bootstrap.servers": "localhost:1"}, timeout_s=0.2)
    monkeypatch.setattr("karrot.watch.cluster_interface.connect", lambda *_, **__: hasty())


@pytest.mark.usefixtures("no_kafka")
def test_brokers_that_do_not_answer_are_named_before_spark_starts() -> None:
    done = CliRunner().invoke(main, ["pipeline", "offsets", "--cluster", "c", "--tables", "t", *_KAFKA])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("karrot: Kafka at localhost:1 does not answer: ")
    assert done.stderr.count("\n") == 1


def test_a_judge_without_a_receiver_prints_and_a_webhook_may_be_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KARROT_STALE_WEBHOOK", "https://hooks.example/s3cret")
    [option] = [each for each in offsets.params if each.name == "receivers"]
    read = partial(read_receivers, Context(offsets), option)
    assert read("webhook") == {"webhook": "https://hooks.example/s3cret"}
    cases = {None: (True, True), "webhook": (True, False), "tables": (False, True), "tables,stdout": (True, True)}
    assert read("tables, webhook=https://h/a,b?c=d,e,stdout")["webhook"] == "https://h/a,b?c=d,e"
    assert {text: tuple(prints(judge, read(text)) for judge in ("burrow", "stale")) for text in cases} == cases


def _to_cloudwatch(**env: str) -> tuple[int, str]:
    command = ["pipeline", "offsets", "--cluster", "c", *_KAFKA, "--judge", "burrow", "--to", "cloudwatch"]
    done = CliRunner().invoke(main, command, env={"KARROT_TABLES_DIR": "t"} | env)
    return done.exit_code, done.stderr


def test_cloudwatch_is_refused_if_the_service_publishes_to_it() -> None:
    code, said = _to_cloudwatch(KARROT_REPORTERS="prometheus, cloudwatch", KARROT_CLOUDWATCH_METRICS="Lag,Status")
    assert code == 2
    assert said.startswith("karrot: KARROT_REPORTERS has cloudwatch, so the service publishes to CloudWatch already")
    assert _to_cloudwatch(KARROT_COMPAT="2019") == (2, said)


def test_the_settings_for_cloudwatch_are_read_but_tables_may_be_at_a_url_that_the_service_refuses() -> None:
    code, said = _to_cloudwatch(KARROT_CLOUDWATCH_INTERVAL="soon")
    assert code == 2
    assert "KARROT_CLOUDWATCH_INTERVAL" in said
    assert (code, said) == _to_cloudwatch(KARROT_CLOUDWATCH_INTERVAL="soon", KARROT_TABLES_DIR="hdfs://lag/tables")
