"""The Grafana dashboards as ConfigMaps for the sidecar of Grafana's chart."""

import json

from karrot.render.dashboards import grafana_dashboard
from support.kubernetes.helm_charts import render_chart
from support.prometheus.grafana_dashboards import DASHBOARDS


def test_no_dashboard_is_rendered_by_default() -> None:
    assert [each.name for each in render_chart("karrot") if "dashboard" in each.template] == []


def test_each_dashboard_is_a_config_map_that_the_sidecar_finds() -> None:
    asked = {"enabled": True, "namespace": "grafana", "annotations": {"grafana_folder": "Kafka"}}
    made = [each for each in render_chart("karrot", {"dashboards": asked}) if "dashboard" in each.template]
    assert [each.name for each in made] == [f"karrot-dashboard-{name}" for name in sorted(DASHBOARDS)]
    for each in made:
        assert each.body["metadata"]["namespace"] == "grafana"
        assert each.body["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each.body["metadata"]["annotations"] == {"grafana_folder": "Kafka"}
    files = {name: json.loads(text) for each in made for name, text in each.body["data"].items()}
    # The sidecar writes the files of all charts into one directory, so each file name begins with its chart.
    assert files == {f"karrot-{name}.json": board for name, board in DASHBOARDS.items()}


def test_dashboards_link_to_karrot_s_own_pages_if_its_address_is_known() -> None:
    values = {"dashboards": {"enabled": True}, "config": {"external_url": "https://karrot.example.com/"}}
    made = [each for each in render_chart("karrot", values) if "dashboard" in each.template]
    files = {name: json.loads(text) for each in made for name, text in each.body["data"].items()}
    printed = {name: json.loads(grafana_dashboard(name, "https://karrot.example.com/")) for name in DASHBOARDS}
    assert files == {f"karrot-{name}.json": board for name, board in printed.items()}
