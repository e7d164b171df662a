"""Serves one page per alert with its runbook, so that you can read the runbooks without the internet."""

import re
from collections.abc import Mapping
from functools import cache
from itertools import groupby
from typing import NamedTuple
from urllib.parse import urljoin

import yaml
from flask import Blueprint, render_template, url_for
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from karrot.render import runbooks_dir, templates_dir
from karrot.runbooks_and_remedies import DOCS_URL
from karrot.web.auth import require_reader
from karrot.web.context import compress
from karrot.web.error_answers import Problem

_SUBJECTS = {"karrot-consumers": "Consumer groups", "karrot-burrow": "Burrow and Kafka", "karrot-service": "Karrot"}
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}|\{\{ with .*?\{\{ end \}\}")

routes = Blueprint("runbooks", __name__)
routes.before_request(require_reader)
routes.after_request(compress)


class Alert(NamedTuple):
    """An alert in the index of runbooks."""

    name: str
    subject: str
    severity: str
    summary: Markup


@cache
def _alerts() -> Mapping[str, Alert]:
    """All alerts by name, in the order of the rules file."""
    found = {}
    for group in yaml.safe_load((templates_dir() / "prometheus" / "alerts.yaml").read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            # The index shows the names of labels instead of their values.
            parts = enumerate(_LABEL.split(rule["annotations"]["summary"]))
            words = (Markup("<var>{}</var>").format(part) if at % 2 else escape(part) for at, part in parts if part)
            subject, severity = _SUBJECTS[group["name"]], rule["labels"]["severity"]
            found[rule["alert"]] = Alert(rule["alert"], subject, severity, Markup().join(words))
    return found


def _html(name: str) -> Markup:
    """Render a runbook without its title to HTML, with links to other runbooks and the online documentation."""
    _open, _title, _close, *tokens = _MARKDOWN.parse((runbooks_dir() / f"{name}.md").read_text(encoding="utf-8"))
    for token in tokens:
        for part in token.children or ():
            if part.type == "link_open":
                target = str(part.attrGet("href"))
                name = target.removesuffix(".md")
                here = url_for("runbooks.show_runbook", name=name) if name in _alerts() else None
                part.attrSet("href", here or urljoin(f"{DOCS_URL}/runbooks/", target))
    return Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))  # noqa: S704 (made without HTML of its source)


@routes.get("/runbooks")
def list_runbooks() -> str:
    """List all alerts with links to their runbooks."""
    subjects = groupby(_alerts().values(), key=lambda alert: alert.subject)
    return render_template("runbooks.html", subjects=[(subject, list(alerts)) for subject, alerts in subjects])


@routes.get("/runbooks/<name>")
def show_runbook(name: str) -> str:
    """Show one runbook. The name may end in ``.md``, because Prometheus's rules link to files with this suffix."""
    alert = _alerts().get(name.removesuffix(".md"))
    if alert is None:
        raise Problem("not_found", "No alert has this name. `/runbooks` lists all alerts.")
    return render_template("runbook.html", alert=alert, text=_html(alert.name))
