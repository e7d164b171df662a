"""The files of the Grafana dashboards keep the rules of grafana/dashboard-linter and some rules of our own."""

import json
import re
from itertools import combinations
from typing import Any

import promql_parser
import pytest

from karrot.render.dashboards import BOARDS as RENDERED
from karrot.render.dashboards import grafana_dashboard
from karrot.telemetry import METRICS
from support.prometheus.exported_metrics import EXPORTED_METRICS
from support.prometheus.grafana_dashboards import DASHBOARDS, Json, annotations, panels, substitute_variables, variables
from support.prometheus.promtool import selected_metrics

OF_THE_TARGET = {"job", "instance"}
OF_PROMETHEUS = {
    "scrape_duration_seconds": OF_THE_TARGET,
    "ALERTS": {"alertname", "alertstate", "cluster", "consumer", *OF_THE_TARGET},
}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"Bps", "bytes", "mps", "none", "ops", "percentunit", "reqps", "s", "short"}
NOT_ON_A_BOARD = {"karrot_consumer_coordinator_id"} | {metric.name for metric in METRICS if metric.now}

PANELS = [(name, panel) for name, board in DASHBOARDS.items() for panel, _ in panels(board)]
QUERIES = [(name, panel, target["expr"]) for name, panel in PANELS for target in panel["targets"]]

boards = pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)


def queries(board: Json) -> list[str]:
    """Return every query of a dashboard, with each variable replaced."""
    own = [target["expr"] for panel, _ in panels(board) for target in panel["targets"]]
    return [substitute_variables(expr, board) for expr in (*own, *(each["expr"] for each in annotations(board)))]


def test_there_are_three_dashboards_that_link_to_each_other_by_a_tag() -> None:
    assert set(RENDERED) == set(DASHBOARDS)
    for name, board in DASHBOARDS.items():
        assert board["uid"] == f"karrot-{name}"
        assert board["tags"] == ["karrot", "kafka"]
        [menu] = board["links"]
        assert (menu["type"], menu["tags"], menu["includeVars"], menu["keepTime"]) == (
            *("dashboards", ["karrot"]),
            *(True, True),
        )


@boards
def test_a_dashboard_is_not_editable_and_finds_its_data_source_by_a_variable(board: Json) -> None:
    assert board["editable"] is False
    source = variables(board)["datasource"]
    assert (source["type"], source["query"], source["label"]) == ("datasource", "prometheus", "Data source")
    for panel, _ in panels(board):
        assert panel["datasource"] == SOURCE
        assert all(target["datasource"] == SOURCE for target in panel["targets"])
    assert all(each["datasource"] == SOURCE for each in annotations(board))


@boards
def test_a_variable_is_read_from_an_existing_metric_whenever_the_time_range_changes(board: Json) -> None:
    for each in variables(board).values():
        if each["type"] == "query":
            assert (each["refresh"], each["datasource"]) == (2, SOURCE)
            selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"]["query"]).groups()  # type: ignore[union-attr]
            for metric, labels in selected_metrics(substitute_variables(selector, board)):
                assert {label, *labels} <= EXPORTED_METRICS[metric] | OF_THE_TARGET


@boards
def test_a_query_uses_only_existing_metrics_and_labels(board: Json) -> None:
    known = EXPORTED_METRICS | OF_PROMETHEUS
    for query in queries(board):
        for metric, labels in selected_metrics(query):
            assert metric in known, query
            assert labels <= known[metric] | OF_THE_TARGET, query


def test_every_metric_of_karrot_is_on_a_dashboard() -> None:
    shown = {
        metric for board in DASHBOARDS.values() for query in queries(board) for metric, _ in selected_metrics(query)
    }
    histogram = {f"karrot_event_handling_seconds_{part}" for part in ("count", "sum")}
    assert EXPORTED_METRICS.keys() - shown == NOT_ON_A_BOARD | histogram


def test_a_counter_is_shown_only_as_an_increase_or_as_a_rate_over_the_panels_interval() -> None:
    for _, panel, expr in QUERIES:
        counters = len(re.findall(r"\w+_(?:total|bucket)\{", expr))
        assert len(re.findall(r"(?:rate|increase)\(\w+_(?:total|bucket)\{", expr)) == counters, panel["title"]
        assert re.findall(r"\brate\([^\[]*\[(.*?)\]", expr) == ["$__rate_interval"] * expr.count("rate(")


def test_a_panel_about_groups_has_one_series_per_group_for_any_number_of_scrapes() -> None:
    for name, panel, expr in QUERIES:
        selected = re.findall(r"(\w+)\{([^}]*)\}", expr)
        if name == "itself":
            assert all(labels.startswith('job=~"$job", instance=~"$instance"') for _, labels in selected)
        else:
            groups = [labels for metric, labels in selected if metric.startswith("karrot_consumer_")]
            exact = 'cluster="$cluster", consumer="$consumer"'
            some = 'cluster=~"$cluster", consumer=~"$consumer"'
            assert all(labels.startswith(exact if name == "group" else some) for labels in groups)
            assert re.search(r"\b(max|sum) by \(", expr), panel["title"]


def test_a_panel_has_a_title_a_unit_and_a_description() -> None:
    for _, panel in PANELS:
        assert panel["type"] in {"stat", "timeseries", "state-timeline", "table"}
        assert panel["title"]
        assert re.fullmatch(r"[A-Z].*[.?]", panel["description"])
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS


def test_each_series_has_its_own_name() -> None:
    for _, panel in PANELS:
        if panel["type"] in {"timeseries", "state-timeline"}:
            names = [target["legendFormat"] for target in panel["targets"]]
            assert "__auto" not in names, panel["title"]
            assert len(set(names)) == len(names)


def test_a_number_or_a_table_queries_the_present_and_a_chart_keeps_its_gaps() -> None:
    for _, panel in PANELS:
        now = panel["type"] in {"stat", "table"}
        assert {(target["instant"], target["range"]) for target in panel["targets"]} == {(now, not now)}
        if panel["type"] == "timeseries":
            assert panel["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False


@boards
def test_panels_have_unique_ids_and_do_not_overlap(board: Json) -> None:
    rows = [each for each in board["panels"] if each["type"] == "row"]
    numbered = [*board["panels"], *(inner for row in rows for inner in row["panels"])]
    assert sorted(each["id"] for each in numbered) == list(range(1, len(numbered) + 1))
    for together in (board["panels"], *(row["panels"] for row in rows)):
        assert all(each["gridPos"]["x"] + each["gridPos"]["w"] <= 24 for each in together)
        assert [pair for pair in combinations(together, 2) if _meet(*(each["gridPos"] for each in pair))] == []


def test_a_link_leads_to_a_dashboard_with_the_group_s_full_name() -> None:
    links = re.findall(r'"url": "(/d/[^"]+)"', json.dumps(DASHBOARDS))
    assert len(links) >= 3
    for link in links:
        uid, arguments = re.fullmatch(r"/d/([\w-]+)\?(.*)", link).groups()  # type: ignore[union-attr]
        target = DASHBOARDS[uid.removeprefix("karrot-")]
        assert set(re.findall(r"var-(\w+)=\$\{[\w.]+:percentencode\}", arguments)) == {"cluster", "consumer"}
        assert {"cluster", "consumer"} <= variables(target).keys()


def test_a_table_names_and_orders_every_column_of_its_queries() -> None:
    tables = [panel for _, panel in PANELS if panel["type"] == "table"]
    assert len(tables) == 1
    for panel in tables:
        merge, organize = panel["transformations"]
        named, placed = (organize["options"][key] for key in ("renameByName", "indexByName"))
        values = {f"Value #{target['refId']}" for target in panel["targets"]}
        assert merge["id"] == "merge"
        assert named.keys() == placed.keys() == values | {"cluster", "consumer"}
        assert sorted(placed.values()) == list(range(len(placed)))
        titles = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
        assert titles == set(named.values())
        assert {each["displayName"] for each in panel["options"]["sortBy"]} <= titles


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_printed_unchanged_or_with_a_link_to_karrot_s_own_page(name: str) -> None:
    linked: dict[str, Any] = json.loads(grafana_dashboard(name, "https://karrot.example.org/karrot/"))
    assert json.loads(grafana_dashboard(name)) == DASHBOARDS[name]
    assert linked["links"][-1]["url"].startswith("https://karrot.example.org/karrot/")
    assert linked | {"links": linked["links"][:-1]} == DASHBOARDS[name]


def test_an_invalid_url_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^--external-url is 'wiki': it must be an http:// or "):
        grafana_dashboard("group", "wiki")


@boards
def test_the_queries_are_valid_promql(board: Json) -> None:
    for query in queries(board):
        promql_parser.parse(query)


def _meet(one: Json, other: Json) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not (beside or below)
