"""Reads the Grafana dashboards that Karrot ships, and fills in their queries like Grafana."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from karrot.render.jinja_templates import templates_dir

Json = dict[str, Any]

DASHBOARDS: dict[str, Json] = {
    path.stem.removeprefix("karrot-"): json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((templates_dir() / "grafana").glob("*.json"))
}
# The variables that Grafana itself fills in, for six hours in 720 steps.
_BUILT_IN = {"__range": "21600s", "__rate_interval": "60s", "__interval": "30s"}
# The choices for text variables; numbers have a default.
_EVERYTHING = {"cluster": ".*", "consumer": ".*", "job": ".+", "instance": ".+"}


class PanelQuery(NamedTuple):
    """A query of a panel of a dashboard; ``folded`` if Grafana sends it only when its row is opened."""

    board: str
    panel: str
    expr: str
    folded: bool


def panels(board: Json) -> Iterator[tuple[Json, bool]]:
    """Yield every panel that is not a row's heading, and whether it is in a folded row."""
    for each in board["panels"]:
        if each["type"] != "row":
            yield each, False
        yield from ((inner, True) for inner in each.get("panels", ()))


def panel_queries() -> Iterator[PanelQuery]:
    """Yield every query of every panel of every dashboard."""
    for name, board in DASHBOARDS.items():
        for panel, folded in panels(board):
            yield from (PanelQuery(name, panel["title"], target["expr"], folded) for target in panel["targets"])


def annotations(board: Json) -> list[Json]:
    """Return the annotations that come from a query."""
    return [each for each in board["annotations"]["list"] if not each.get("builtIn")]


def variables(board: Json) -> dict[str, Json]:
    return {each["name"]: each for each in board["templating"]["list"]}


def substitute_variables(expr: str, board: Json, chosen: Mapping[str, str] = _EVERYTHING) -> str:
    """Return the query with every variable replaced; raises ``KeyError`` for a variable that the dashboard lacks."""
    known = {name: each["current"].get("value", "") for name, each in variables(board).items()} | _BUILT_IN
    own = {name: text for name, text in chosen.items() if name in known}
    return re.sub(r"\$(\w+)", lambda found: str((known | own)[found[1]]), expr)
