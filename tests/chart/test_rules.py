"""The PrometheusRule has exactly the rules that ``karrot render`` prints."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from karrot.render import templates_dir
from karrot.render.prometheus_rules import alert_rules, recording_rules, thresholds
from support.kubernetes.helm_charts import CHARTS, load_chart, only_object, render_chart, render_values_file


def groups(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    rule = only_object(render_chart("karrot", {"prometheusRule": {"enabled": True} | (values or {})}), "PrometheusRule")
    found: list[dict[str, Any]] = rule["spec"]["groups"]
    return found


def printed(**asked: Any) -> list[dict[str, Any]]:
    """Return the alerts and recording rules that ``karrot render`` prints, without a chart."""
    return [group for text in (alert_rules(**asked), recording_rules()) for group in yaml.safe_load(text)["groups"]]


def test_the_chart_and_the_command_have_the_same_rules() -> None:
    assert groups() == printed()


def test_thresholds_and_addresses_have_the_same_effect_as_in_the_command() -> None:
    values = {
        "prometheusRule": {
            "enabled": True,
            "runbookUrl": "https://runbooks.example/",
            "thresholds": {"lagSeconds": 1_000_000, "lagGrowth": 0.5, "errorFor": "10m"},
        },
        "config": {"external_url": "https://karrot.example/"},
    }
    asked = printed(
        changed={"lagSeconds": "1000000", "lagGrowth": "0.5", "errorFor": "10m"},
        external_url="https://karrot.example/",
        runbook_url="https://runbooks.example/",
    )
    assert only_object(render_chart("karrot", values), "PrometheusRule")["spec"]["groups"] == asked


def test_runbook_links_point_to_karrot_unless_another_address_is_given() -> None:
    values = {"prometheusRule": {"enabled": True}, "config": {"external_url": "https://karrot.example/"}}
    found = only_object(render_chart("karrot", values), "PrometheusRule")["spec"]["groups"]
    assert found == printed(external_url="https://karrot.example/")
    first = found[0]["rules"][0]["annotations"]["runbook_url"]
    assert first == "https://karrot.example/runbooks/KarrotConsumerError.md"


def test_the_schema_has_the_thresholds_and_sentences_of_the_rules() -> None:
    values = load_chart("karrot").values
    assert values["prometheusRule"]["thresholds"] == thresholds()
    source = (templates_dir() / "prometheus" / "thresholds.yaml").read_text(encoding="utf-8").partition("\n\n")[2]
    lines = (CHARTS / "karrot" / "values.yaml").read_text(encoding="utf-8").splitlines()
    told = {line.strip().removeprefix("# -- ") for line in lines}
    assert {line.removeprefix("# ") for line in source.splitlines() if line.startswith("# ")} <= told


def test_an_alert_can_be_left_out_and_all_alerts_can_get_labels() -> None:
    changed = groups({"disabled": ["KarrotAbsent"], "alertLabels": {"team": "data"}, "recordings": False})
    alerts = {rule["alert"]: rule for group in changed for rule in group["rules"]}
    assert set(alerts) == {rule["alert"] for group in printed() for rule in group["rules"] if "alert" in rule} - {
        "KarrotAbsent"
    }
    assert {rule["labels"]["team"] for rule in alerts.values()} == {"data"}
    assert {rule["labels"]["severity"] for rule in alerts.values()} == {"critical", "warning"}


def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian: apt-get install prometheus)")
    rule = only_object(render_values_file(CHARTS / "karrot" / "ci" / "everything.yaml"), "PrometheusRule")
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": rule["spec"]["groups"]}), encoding="utf-8")
    done = subprocess.run([promtool, "check", "rules", "--lint=all", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
