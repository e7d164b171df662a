"""The dashboards for grafana.com ask for their data source and name what they need; the rest is as shipped."""

import json
import re
from typing import Any

import pytest

from tools.dashboards.__main__ import BOARDS, DIRECTORY
from tools.dashboards.grafana_com import for_grafana_com


@pytest.fixture(params=[board["uid"] for board in BOARDS])
def shipped(request: pytest.FixtureRequest) -> Any:
    return json.loads((DIRECTORY / f"{request.param}.json").read_text(encoding="utf-8"))


def test_the_import_asks_for_the_data_source_and_nothing_else_is_open(shipped: Any) -> None:
    uploaded = for_grafana_com(shipped)
    inputs = {each["name"] for each in uploaded["__inputs"]}
    assert set(re.findall(r"\$\{(DS_\w+)\}", json.dumps(uploaded))) == inputs == {"DS_PROMETHEUS"}
    [chosen] = [each for each in uploaded["templating"]["list"] if each["name"] == "datasource"]
    assert chosen["current"]["value"] == "${DS_PROMETHEUS}"


def test_every_plugin_of_a_panel_and_of_a_data_source_is_required(shipped: Any) -> None:
    text = json.dumps(shipped["panels"])
    needed = {("grafana", "grafana"), ("datasource", "prometheus")}
    needed |= {("panel", each) for each in _panel_types(shipped["panels"])} - {("panel", "row")}
    assert {(each["type"], each["id"]) for each in for_grafana_com(shipped)["__requires"]} == needed
    assert set(re.findall(r'"datasource": \{"type": "([\w-]+)"', text)) == {"prometheus"}


def _panel_types(panels: Any) -> set[str]:
    return {each["type"] for each in panels} | {
        kind for each in panels for kind in _panel_types(each.get("panels", []))
    }


def test_the_dashboard_has_no_id_of_a_grafana_and_is_otherwise_the_shipped_one(shipped: Any) -> None:
    uploaded = for_grafana_com(shipped)
    assert uploaded["id"] is None
    assert uploaded["uid"] == shipped["uid"]
    assert {key for key, value in shipped.items() if uploaded[key] != value} == {"editable", "templating"}
