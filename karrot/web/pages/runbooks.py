"""Serves one page per alert with its runbook, so that you can read the runbooks without the internet."""

import re
from collections.abc import Mapping
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import urljoin

import yaml
from flask import Blueprint, current_app, render_template, url_for
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from karrot.runbooks_and_remedies import DOCS_URL
from karrot.web.auth import require_reader
from karrot.web.context import compress
from karrot.web.error_answers import Problem

EXTENSION = "karrot-runbooks"

_SUBJECTS = {"karrot-consumers": "Consumer groups", "karrot-burrow": "Burrow and Kafka", "karrot-service": "Karrot"}
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


class Runbooks:
    """Reads Markdown runbooks, which have the names of alerts in a rules file, from a folder at each request."""

    def __init__(self, folder: Path, rules: Path) -> None:
        self._folder = folder
        self._rules = rules
        self._markdown = MarkdownIt("commonmark", {"html": False}).enable("table")

    @cached_property
    def alerts(self) -> Mapping[str, Alert]:
        """All alerts by name, in the order of the rules file."""
        found = {}
        for group in yaml.safe_load(self._rules.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                # The index shows the names of labels instead of their values.
                parts = enumerate(_LABEL.split(rule["annotations"]["summary"]))
                words = (Markup("<var>{}</var>").format(part) if at % 2 else escape(part) for at, part in parts if part)
                subject, severity = _SUBJECTS[group["name"]], rule["labels"]["severity"]
                found[rule["alert"]] = Alert(rule["alert"], subject, severity, Markup().join(words))
        return found

    def html(self, name: str) -> Markup:
        """Render a runbook without its title to HTML, with links to other runbooks and the online documentation."""
        text = (self._folder / f"{name}.md").read_text(encoding="utf-8")
        _open, _title, _close, *tokens = self._markdown.parse(text)
        for token in tokens:
            for part in token.children or ():
                if part.type == "link_open":
                    target = str(part.attrGet("href"))
                    name = target.removesuffix(".md")
                    here = url_for("runbooks.show_runbook", name=name) if name in self.alerts else None
                    part.attrSet("href", here or urljoin(f"{DOCS_URL}/runbooks/", target))
        return Markup(self._markdown.renderer.render(tokens, self._markdown.options, {}))  # noqa: S704 (made without HTML of its source)


@routes.get("/runbooks")
def list_runbooks() -> str:
    """List all alerts with links to their runbooks."""
    subjects = groupby(_runbooks().alerts.values(), key=lambda alert: alert.subject)
    return render_template("runbooks.html", subjects=[(subject, list(alerts)) for subject, alerts in subjects])


@routes.get("/runbooks/<name>")
def show_runbook(name: str) -> str:
    """Show one runbook. The name may end in ``.md``, because Prometheus's rules link to files with this suffix."""
    found = _runbooks()
    alert = found.alerts.get(name.removesuffix(".md"))
    if alert is None:
        raise Problem("not_found", "No alert has this name. `/runbooks` lists all alerts.")
    return render_template("runbook.html", alert=alert, text=found.html(alert.name))


def _runbooks() -> Runbooks:
    return cast("Runbooks", current_app.extensions[EXTENSION])
