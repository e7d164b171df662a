"""The rules as files: what they say, what they link to and which metrics they need."""

import re
from pathlib import Path

import promql_parser
import pytest
import yaml

from karrot.render.jinja_templates import runbooks_dir, templates_dir
from karrot.render.prometheus_rules import RuleValues, alert_rules, recording_rules, thresholds
from support.prometheus.exported_metrics import EXPORTED_METRICS
from support.prometheus.promtool import parse_rules, promtool, selected_metrics

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
FULL = RuleValues(external_url="https://karrot.example.org/", runbook_url="https://runbooks.example.org")
ALERTS = {rule["alert"]: rule for rule in parse_rules(alert_rules(FULL))}
RECORDINGS = {rule["record"]: rule for rule in parse_rules(recording_rules())}
OF_THE_TARGET = {"job", "instance"}


def test_promtool_finds_no_fault_in_either_file(tmp_path: Path) -> None:
    texts = {"full.yml": alert_rules(FULL), "bare.yml": alert_rules(RuleValues()), "recordings.yml": recording_rules()}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    said = promtool("check", "rules", "--lint=all", "--lint-fatal", *(tmp_path / name for name in texts))
    assert re.findall(r"SUCCESS: (\d+) rules", said) == [str(len(ALERTS))] * 2 + [str(len(RECORDINGS))]


def test_a_rule_asks_only_for_metrics_and_labels_that_karrot_exports() -> None:
    for name, rule in (ALERTS | RECORDINGS).items():
        for metric, labels in selected_metrics(rule["expr"]):
            assert metric in EXPORTED_METRICS, f"{name} asks for {metric}"
            assert labels <= EXPORTED_METRICS[metric] | OF_THE_TARGET, f"{name} asks {metric} for {labels}"


def test_an_alert_says_everything_that_people_and_alertmanager_look_for() -> None:
    for name, rule in ALERTS.items():
        assert re.fullmatch(r"Karrot([A-Z][a-z]+)+", name)
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() - {"karrot_url"} == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"https://runbooks.example.org/{name}.md"
        assert rule["annotations"]["description"].endswith(".")


def test_an_alert_on_a_group_links_to_the_group_s_page_and_only_a_missing_karrot_to_none() -> None:
    page = "/group?cluster={{ $labels.cluster | urlquery }}&consumer={{ $labels.consumer | urlquery }}"
    for name, rule in ALERTS.items():
        link = rule["annotations"].get("karrot_url")
        about_a_group = "$labels.consumer" in rule["annotations"]["summary"]
        assert (link is None) == (name == "KarrotAbsent")
        assert (link == f"https://karrot.example.org{page}") == about_a_group


def test_addresses_that_are_not_known_leave_no_link() -> None:
    bare = {rule["alert"]: rule for rule in parse_rules(alert_rules(RuleValues()))}
    for name, rule in bare.items():
        assert rule["annotations"].keys() == {"summary", "description"}
        assert {**rule, "annotations": None} == {**ALERTS[name], "annotations": None}


def test_a_recording_is_named_by_its_level_its_metric_and_its_operation() -> None:
    for name, rule in RECORDINGS.items():
        level, _, operation = re.fullmatch(r"(\w+):(karrot_\w+):(\w+)", name, re.ASCII).groups()  # type: ignore[union-attr]
        inner = {label for _, labels in selected_metrics(rule["expr"]) for label in labels}
        assert set(level.split("_")) <= inner
        assert re.fullmatch(r"(max|min|sum|count|deriv|ratio|increase)(\d+[mh])?", operation)


def test_every_threshold_is_used_explained_and_can_be_set() -> None:
    source = (templates_dir() / "prometheus" / "thresholds.yaml").read_text(encoding="utf-8")
    rules = (templates_dir() / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"<<(\w+)>>", rules)) == {*thresholds(), "runbookUrl", "externalUrl"}
    assert len(re.findall(r"^# [A-Z].*\.\n\w+: ", source, re.MULTILINE)) == len(thresholds())
    for name, default in thresholds().items():
        other = "7m" if isinstance(default, str) else "7777"
        text = alert_rules(RuleValues(changed={name: other}))
        assert text.count(other) == rules.count(f"<<{name}>>") > 0


def test_no_name_is_left_for_prometheus_to_stumble_over() -> None:
    for text in (alert_rules(FULL), alert_rules(RuleValues()), recording_rules()):
        assert "<<" not in text
        assert ">>" not in text


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"changed": {"lagSecond": "1"}}, "--set 'lagSecond' is not a threshold; the thresholds are errorFor, "),
        ({"changed": {"lagSeconds": "5m"}}, "--set lagSeconds is '5m': it must be a number, not below 0"),
        ({"changed": {"lagSeconds": ""}}, "--set lagSeconds is '': it must be a number, not below 0"),
        ({"changed": {"errorFor": "300"}}, "--set errorFor is '300': it must be a duration such as 90s, 5m or 1h30m"),
        ({"changed": {"errorFor": "0s"}}, "--set errorFor is '0s': it must be a duration such as 90s, 5m or 1h30m"),
        ({"external_url": "https://a/{{ b }}"}, "--external-url is 'https://a/{{ b }}': it must be an http:// or "),
        ({"runbook_url": "wiki"}, "--runbook-url is 'wiki': it must be an http:// or https:// address"),
    ],
)
def test_what_no_rules_can_be_made_of_is_refused_with_a_sentence(asked: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(problem)):
        RuleValues(**asked)  # type: ignore[arg-type]


def test_every_alert_has_a_runbook_that_ends_with_what_to_do_and_there_is_no_other() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(ALERTS)
    for name in ALERTS:
        page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
        heads = re.findall(r"^#+ .*$", page, re.MULTILINE)
        assert heads == [f"# {name}", "## What to look at", "## Likely causes", "## What to do"]
        assert "karrot_" in page or "karrot " in page


def test_an_installed_karrot_has_the_runbook_of_every_alert() -> None:
    assert {path.name for path in runbooks_dir().iterdir()} == {f"{name}.md" for name in ALERTS}


def test_the_queries_of_the_runbooks_ask_for_what_karrot_exports() -> None:
    for path in RUNBOOKS.glob("*.md"):
        for query in re.findall(r"^```promql\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for metric, labels in selected_metrics(query):
                assert metric == "up" or metric in EXPORTED_METRICS, f"{path.name} asks for {metric}"
                assert labels <= EXPORTED_METRICS.get(metric, set()) | OF_THE_TARGET


def test_the_table_of_alerts_is_what_the_rules_say() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(Karrot\w+)\]\(runbooks/(Karrot\w+)\.md\) \| (\w+) \|", page, re.MULTILINE)
    assert rows == [(name, name, rule["labels"]["severity"]) for name, rule in ALERTS.items()]
    told = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", page, re.MULTILINE)
    assert told == [(name, str(default)) for name, default in thresholds().items()]
    assert re.findall(r"^\| `(\w+:\w+:\w+)` \|", page, re.MULTILINE) == list(RECORDINGS)


def test_the_sources_are_yaml_as_they_stand_and_queries_once_filled() -> None:
    for name in ("alerts.yaml", "recordings.yaml", "thresholds.yaml"):
        yaml.safe_load((templates_dir() / "prometheus" / name).read_text(encoding="utf-8"))
    for rule in (ALERTS | RECORDINGS).values():
        promql_parser.parse(rule["expr"])
