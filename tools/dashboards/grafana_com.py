"""Makes the files for an upload to grafana.com: a dashboard in the format of Grafana's "Export for sharing externally".

The shipped dashboards are for provisioning, which asks no questions. An import from grafana.com asks for the data
source (``__inputs``) and checks what the dashboard needs (``__requires``).
"""

from collections.abc import Iterator

from tools.dashboards.panels import Json

PREFIX = "grafana-com-"
_INPUT = "DS_PROMETHEUS"
_GRAFANA = "10.0.0"
_PANELS = {"stat": "Stat", "state-timeline": "State timeline", "table": "Table", "timeseries": "Time series"}
"""The names of the panel plugins that the dashboards use. A row is no plugin."""


def for_grafana_com(board: Json) -> Json:
    """Return the dashboard with the data source as an input of the import."""
    source = f"${{{_INPUT}}}"
    chosen = {"current": {"selected": True, "text": source, "value": source}}
    listed = board["templating"]["list"]
    variables = [each | chosen if each["type"] == "datasource" else each for each in listed]
    plugins = sorted(set(_types(board["panels"])) - {"row"})
    return {
        "__inputs": [
            {
                "name": _INPUT,
                "label": "Prometheus",
                "description": "The Prometheus that scrapes Karrot",
                "type": "datasource",
                "pluginId": "prometheus",
                "pluginName": "Prometheus",
            }
        ],
        "__elements": {},
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": _GRAFANA},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
            *({"type": "panel", "id": each, "name": _PANELS[each], "version": ""} for each in plugins),
        ],
        "id": None,
        **board,
        "editable": True,
        "templating": {"list": variables},
    }


def _types(panels: list[Json]) -> Iterator[str]:
    for panel in panels:
        yield panel["type"]
        yield from _types(panel.get("panels", []))
