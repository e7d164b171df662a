"""Writes the shipped dashboards to ``templates/grafana/``: ``python -m tools.dashboards``, part of ``make docs``."""

import json
from pathlib import Path

from tools.dashboards.group_dashboard import ONE_GROUP
from tools.dashboards.karrot_dashboard import ITSELF
from tools.dashboards.overview_dashboard import OVERVIEW
from tools.dashboards.panels import Json

DIRECTORY = Path(__file__).resolve().parents[2] / "templates" / "grafana"
BOARDS = (OVERVIEW, ONE_GROUP, ITSELF)


def text(board: Json) -> str:
    """Return a dashboard in Grafana's export format. You can then compare the file with an export from Grafana."""
    return json.dumps(board, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in BOARDS:
        (DIRECTORY / f"{each['uid']}.json").write_text(text(each), encoding="utf-8")
