"""``karrot pipeline evaluate`` refuses wrong options before it starts Spark."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from karrot.burrow.notification_rules import NameFilter
from karrot.cli import main
from karrot.event import Status
from karrot.pipeline.evaluate.bucket_state import EvaluateRules


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--source kafka needs --bootstrap-servers"),
        (["--source=parquet", "--input=/tmp"], "--source parquet needs --input and --ends-input"),
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
        (
            ["--source=parquet", "--input=/tmp", "--ends-input=/tmp", "--to=kafka=verdicts"],
            "--to kafka= needs --bootstrap-servers",
        ),
        (["--bootstrap-servers=k:9092", "--rules=colour=blue"], "'colour' is not a rule of Burrow"),
    ],
)
def test_a_wrong_option_is_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    command = ["pipeline", "evaluate", "--cluster=c", f"--tables={tmp_path}", *arguments]
    ended = CliRunner().invoke(main, command)
    assert (ended.exit_code, said in ended.output) == (2, True), ended.output


SHAPES = Path(__file__).parents[2] / "data" / "burrow-config" / "shapes"


def _said_of(shape: str, *arguments: str, cluster: str) -> list[str]:
    """Return what the command prints of a burrow.toml, before it refuses to start without brokers."""
    of_file = [f"--cluster={cluster}", f"--burrow-toml={SHAPES / shape}.toml"]
    ended = CliRunner().invoke(main, ["pipeline", "evaluate", "--tables=/tmp/t", *of_file, *arguments])
    assert ended.exit_code == 2, ended.output
    *said, refused = ended.output.splitlines()
    assert "--source kafka needs --bootstrap-servers" in refused
    return [line.removeprefix("karrot: ").replace(f"{SHAPES}/", "") for line in said if line.startswith("karrot: ")]


def test_a_burrow_toml_is_listed_by_what_is_taken_and_what_verdicts_depend_on() -> None:
    changing = "consumer.moved.group-blacklist, consumer.moved.offsets-topic, lagcheck"
    assert _said_of("leftovers", cluster="moved") == [
        "taken from leftovers.toml: consumer.moved.group-denylist = ^new-",
        f"not taken, although verdicts depend on it: {changing}",
        "not taken: cluster.moved.servers, tickers",
    ]
    assert _said_of("only-kafka", cluster="small")[0] == "taken from only-kafka.toml: nothing"


def test_an_option_overrides_a_burrow_toml() -> None:
    taken, overridden, *_ = _said_of("slack", "--every=30s", "--threshold=OK", cluster="chat")
    assert taken == (
        "taken from slack.toml: notifier.slack.group-allowlist = ^(orders|payments)$, "
        "notifier.slack.send-close = False (Burrow's default)"
    )
    assert overridden == (
        "options override: notifier.slack.interval = 10, notifier.slack.threshold = 2 (Burrow's default)"
    )


TOO_FEW = "with the threshold 2, Karrot does not get the lag of groups that are OK; add --threshold OK"


@pytest.mark.parametrize(
    ("shape", "cluster", "arguments", "is_said"),
    [
        ("slack", "chat", ["--to=karrot=http://karrot:5000"], True),
        ("slack", "chat", ["--to=tables,karrot=http://karrot:5000"], True),
        ("slack", "chat", ["--to=karrot=http://karrot:5000", "--threshold=OK"], False),
        ("slack", "chat", ["--to=tables"], False),
        ("in-docker", "docker", ["--to=karrot=http://karrot:5000"], False),
        ("as-shipped", "main", ["--to=karrot=http://karrot:5000"], False),
    ],
)
def test_a_threshold_that_keeps_healthy_groups_from_karrot_is_told(
    shape: str,
    cluster: str,
    arguments: list[str],
    is_said: bool,  # noqa: FBT001 (a parameter of the test)
) -> None:
    assert (TOO_FEW in _said_of(shape, *arguments, cluster=cluster)) is is_said


def test_without_a_notifier_in_burrow_toml_healthy_groups_and_closes_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[EvaluateRules] = []
    module = import_module("karrot.cli.pipeline.evaluate")
    rules_of = module._rules

    def kept(given: dict[str, Any]) -> EvaluateRules:
        asked.append(rules_of(given))
        return asked[-1]

    monkeypatch.setattr(module, "_rules", kept)
    _said_of("in-docker", cluster="docker")
    assert (asked[0].notifier.threshold, asked[0].notifier.send_close) == (Status.OK, True)
    assert asked[0].read == (NameFilter((), ("^(console-consumer-).*$",)),)
