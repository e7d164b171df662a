"""Writes ``templates/grafana/``, the dashboards that are shipped: ``python -m tools.boards``; part of ``make docs``."""

import json
from pathlib import Path

from tools.boards.group import ONE_GROUP
from tools.boards.itself import ITSELF
from tools.boards.overview import OVERVIEW
from tools.boards.panels import Json

DIRECTORY = Path(__file__).resolve().parents[2] / "templates" / "grafana"
BOARDS = (OVERVIEW, ONE_GROUP, ITSELF)


def text(board: Json) -> str:
    """As Grafana exports it, so that what was changed there can be compared."""
    return json.dumps(board, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in BOARDS:
        (DIRECTORY / f"{each['uid']}.json").write_text(text(each), encoding="utf-8")
