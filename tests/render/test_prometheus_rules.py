"""The files of the Prometheus rules: their texts, their links and their metrics."""

import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from karrot.render.jinja_templates import runbooks_dir, templates_dir
from karrot.render.prometheus_rules import alert_rules, recording_rules, thresholds
from support.prometheus.exported_metrics import EXPORTED_METRICS, PIPELINES_METRICS
from support.prometheus.promtool import parse_rules, promtool, selected_metrics

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
FULL: dict[str, Any] = {"external_url": "https://karrot.example.org/", "runbook_url": "https://runbooks.example.org"}
ALERTS = {rule["alert"]: rule for rule in parse_rules(alert_rules(**FULL))}
RECORDINGS = {rule["record"]: rule for rule in parse_rules(recording_rules())}
OF_THE_TARGET = {"namespace", "job", "instance"}
KNOWN = EXPORTED_METRICS | PIPELINES_METRICS | {"up": set()}


def test_promtool_finds_no_fault_in_either_file(tmp_path: Path) -> None:
    texts = {"full.yml": alert_rules(**FULL), "bare.yml": alert_rules(), "recordings.yml": recording_rules()}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    said = promtool("check", "rules", "--lint=all", "--lint-fatal", *(tmp_path / name for name in texts))
    assert re.findall(r"SUCCESS: (\d+) rules", said) == [str(len(ALERTS))] * 2 + [str(len(RECORDINGS))]


def test_a_rule_uses_only_metrics_and_labels_that_karrot_exports() -> None:
    for name, rule in (ALERTS | RECORDINGS).items():
        for metric, labels in selected_metrics(rule["expr"]):
            assert metric in KNOWN, f"{name} asks for {metric}"
            assert labels <= KNOWN[metric] | OF_THE_TARGET, f"{name} asks {metric} for {labels}"


def test_an_alert_has_all_labels_and_annotations_for_people_and_alertmanager() -> None:
    for name, rule in ALERTS.items():
        assert re.fullmatch(r"Karrot([A-Z][a-z]+)+", name)
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() - {"karrot_url"} == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"https://runbooks.example.org/{name}.md"
        assert rule["annotations"]["description"].endswith(".")


def test_every_alert_links_to_a_page_except_the_one_on_a_missing_karrot() -> None:
    page = "/group?cluster={{ $labels.cluster | urlquery }}&consumer={{ $labels.consumer | urlquery }}"
    for name, rule in ALERTS.items():
        link = rule["annotations"].get("karrot_url")
        about_a_group = "$labels.consumer" in rule["annotations"]["summary"]
        assert (link is None) == (name == "KarrotAbsent")
        assert (link == f"https://karrot.example.org{page}") == about_a_group


def test_an_unknown_url_leaves_no_link() -> None:
    bare = {rule["alert"]: rule for rule in parse_rules(alert_rules())}
    for name, rule in bare.items():
        assert rule["annotations"].keys() == {"summary", "description"}
        assert {**rule, "annotations": None} == {**ALERTS[name], "annotations": None}


def test_a_recording_rule_is_named_by_its_level_its_metric_and_its_operation() -> None:
    for name, rule in RECORDINGS.items():
        level, _, operation = re.fullmatch(r"(\w+):(karrot_\w+):(\w+)", name, re.ASCII).groups()  # type: ignore[union-attr]
        inner = {label for _, labels in selected_metrics(rule["expr"]) for label in labels}
        assert set(level.split("_")) <= inner
        assert re.fullmatch(r"(max|min|sum|count|deriv|ratio|increase)(\d+[mh])?", operation)


def test_every_threshold_is_used_and_explained_and_can_be_set() -> None:
    source = (templates_dir() / "prometheus" / "thresholds.yaml").read_text(encoding="utf-8")
    rules = (templates_dir() / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"<<(\w+)>>", rules)) == {*thresholds(), "runbookUrl", "externalUrl"}
    assert len(re.findall(r"^# [A-Z].*\.\n\w+: ", source, re.MULTILINE)) == len(thresholds())
    for name, default in thresholds().items():
        other = "7m" if isinstance(default, str) else "7777"
        text = alert_rules(changed={name: other})
        assert text.count(other) == rules.count(f"<<{name}>>") > 0


def test_no_placeholder_is_left_in_the_rules() -> None:
    for text in (alert_rules(**FULL), alert_rules(), recording_rules()):
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
def test_invalid_options_of_rules_are_refused_with_one_sentence(asked: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(problem)):
        alert_rules(**asked)  # type: ignore[arg-type]


def test_every_alert_has_a_runbook_that_ends_with_the_remedy_and_there_are_no_others() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(ALERTS)
    for name in ALERTS:
        page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
        heads = re.findall(r"^#+ .*$", page, re.MULTILINE)
        assert heads == [f"# {name}", "## What to check", "## What to do"]
        assert "karrot_" in page or "karrot " in page


def test_an_installed_karrot_has_the_runbook_of_every_alert() -> None:
    assert {path.name for path in runbooks_dir().iterdir()} == {f"{name}.md" for name in ALERTS}


def test_the_queries_of_the_runbooks_use_only_metrics_that_karrot_exports() -> None:
    for path in RUNBOOKS.glob("*.md"):
        for query in re.findall(r"^```promql\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for metric, labels in selected_metrics(query):
                assert metric == "up" or metric in KNOWN, f"{path.name} asks for {metric}"
                assert labels <= KNOWN.get(metric, set()) | OF_THE_TARGET


def test_the_table_of_alerts_matches_the_rules() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(Karrot\w+)\]\(runbooks/(Karrot\w+)\.md\) \| (\w+) \|", page, re.MULTILINE)
    assert rows == [(name, name, rule["labels"]["severity"]) for name, rule in ALERTS.items()]
    told = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", page, re.MULTILINE)
    assert told == [(name, str(default)) for name, default in thresholds().items()]
    assert re.findall(r"^\| `(\w+:\w+:\w+)` \|", page, re.MULTILINE) == list(RECORDINGS)


def test_the_sources_are_valid_yaml_and_give_valid_queries_once_filled_in() -> None:
    for name in ("alerts.yaml", "recordings.yaml", "thresholds.yaml"):
        yaml.safe_load((templates_dir() / "prometheus" / name).read_text(encoding="utf-8"))
    for rule in (ALERTS | RECORDINGS).values():
        promql_parser.parse(rule["expr"])
