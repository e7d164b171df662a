"""Known problems, alerts and runbooks refer to each other."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from karrot.render import runbooks_dir
from karrot.render.prometheus_rules import alert_rules
from support.kafka.commands_in_docs import in_runbooks
from support.prometheus.promtool import parse_rules

ROOT = Path(__file__).resolve().parents[1]
ALERTS = {rule["alert"] for rule in parse_rules(alert_rules())}

ONLY_PROMETHEUS_SEES = {
    "KarrotClockAhead": "only the clock of Prometheus shows that the clock of Karrot is wrong",
    "KarrotConsumerNeverCatchesUp": "needs the catch-up time over some minutes",
    "KarrotConsumerNotCommitting": "compares two times of a group for longer than one verdict",
    "KarrotConsumerFlapping": "counts the incidents of an hour",
    "KarrotStandbyBehind": "the API shows the standbys, but only the alert judges them",
    "KarrotEvaluateBehind": "evaluate is another process, and its own port has its metrics and its health",
    "KarrotPipelineBehind": "the pipeline is another process, and its own port has its metrics",
}
"""Alerts on problems that neither a page nor the doctor reports, and the reasons."""


def test_each_other_alert_is_named_where_karrot_shows_the_problem_itself() -> None:
    places = [ROOT / "karrot" / "runbooks_and_remedies.py", ROOT / "templates" / "diagnosis" / "causes.yaml"]
    for folder in ("karrot/web", "karrot/doctor", "templates/web"):
        places += [path for path in (ROOT / folder).rglob("*.*") if path.suffix in {".py", ".html"}]
    named = {name for path in places for name in re.findall(r'(?:"|runbook: )(Karrot[A-Z]\w+)', path.read_text())}
    assert named == ALERTS - ONLY_PROMETHEUS_SEES.keys()


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {path.stem for path in runbooks_dir().glob("*.md")} == ALERTS


def test_every_runbook_that_a_file_names_exists() -> None:
    named = {
        (name, str(path.relative_to(ROOT)))
        for folder in ("karrot", "templates", "docs", "tools", "examples", "helm")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in {".py", ".html", ".json", ".yaml", ".md", ".tmpl"}
        for name in re.findall(r"runbooks?[ /](Karrot[A-Z]\w+)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > len(ALERTS)
    assert sorted(each for each in named if each[0] not in ALERTS) == []


def test_each_command_of_kafka_in_a_runbook_runs_as_pasted() -> None:
    found = in_runbooks(ROOT / "docs")
    assert len({each.page for each in found}) > 5
    faults = [f"{page.name}: {line}: {fault}" for page, name, line in found for fault in faults_of(name, line)]
    assert faults == []


def faults_of(command: str, line: str) -> Iterator[str]:
    """Yield what a command lacks, so that a paste fails, acts on another place, or changes something at once.

    `tests/e2e/test_kafka_commands_in_docs.py` runs the commands on a real Kafka.
    """
    words = set(line.split())
    if not line.startswith(f"{command}.sh --bootstrap-server kafka-1:9092 "):
        yield f"must begin with {command}.sh --bootstrap-server kafka-1:9092"
    if "..." in line or "…" in line:
        yield "has a gap"
    for option, needed in _NEEDS.get(command, {}).items():
        if option in words:
            yield from (f"needs {' or '.join(each)}" for each in needed if not words & set(each))
    if "--execute" in words:
        yield "must have --dry-run in place of --execute"


_TOPIC_AND_PARTITION = [["--topic"], ["--partition"]]
_NEEDS: Mapping[str, Mapping[str, list[list[str]]]] = {
    "kafka-consumer-groups": {
        "--reset-offsets": [
            ["--group"],
            ["--topic", "--all-topics"],
            ["--dry-run"],
            ["--to-earliest", "--to-latest", "--to-offset", "--to-datetime", "--shift-by"],
        ],
        "--describe": [["--group"]],
        "--delete": [["--group"]],
    },
    "kafka-configs": {
        "--alter": [["--entity-type"], ["--entity-name"], ["--add-config", "--delete-config"]],
        "--describe": [["--entity-type"], ["--entity-name"]],
    },
    "kafka-console-consumer": {
        "--topic": [["--partition"], ["--offset"], ["--max-messages"], ["--timeout-ms"], ["--isolation-level"]]
    },
    "kafka-get-offsets": {"--bootstrap-server": [["--topic"]]},
    "kafka-transactions": {
        "describe-producers": _TOPIC_AND_PARTITION,
        "find-hanging": [["--topic", "--broker-id"]],
        "abort": [*_TOPIC_AND_PARTITION, ["--start-offset"]],
    },
}
"""The options that a command needs, by an option or word that it has."""
