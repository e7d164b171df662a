"""Renders ``karrot render dashboard``: the Grafana dashboards, from the same files as the chart."""

import json
from typing import Any

from karrot.render.templates import templates_dir
from karrot.settings import types

_PAGES = {
    "overview": "/",
    "group": "/group?cluster=${cluster:percentencode}&consumer=${consumer:percentencode}",
    "itself": "/reporters",
}
"""Karrot's own page on what a board shows."""

BOARDS = tuple(_PAGES)


def dashboard(board: str, external_url: str | None = None) -> str:
    """A dashboard as JSON for Grafana's import or its provisioning, in which every Grafana finds its own Prometheus.

    With Karrot's address for people the board links to Karrot's own page. Raises `ValueError` for what is no address.
    """
    text = (templates_dir() / "grafana" / f"karrot-{board}.json").read_text(encoding="utf-8")
    if not external_url:
        return text
    types.checked(types.url, "--external-url", external_url)
    read: dict[str, Any] = json.loads(text)
    read["links"].append(_link(external_url.rstrip("/") + _PAGES[board]))
    return json.dumps(read, indent=2, ensure_ascii=False) + "\n"


def _link(url: str) -> dict[str, Any]:
    return {
        "title": "Karrot's page",
        "type": "link",
        "icon": "external link",
        "tooltip": "",
        "url": url,
        "tags": [],
        "asDropdown": False,
        "includeVars": False,
        "keepTime": False,
        "targetBlank": True,
    }
