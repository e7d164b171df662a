"""Serves one page per alert with its runbook, for reading without the internet, or filled in for one group."""

import re
from collections.abc import Mapping
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin

import yaml
from flask import Blueprint, render_template, request, url_for
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from karrot.diagnosis.explanations import names_of
from karrot.diagnosis.known_facts import gather
from karrot.diagnosis.rules import find
from karrot.event import GroupKey
from karrot.render import runbooks_dir, templates_dir
from karrot.reporters.prometheus.group_metrics import promql_text
from karrot.runbooks_and_remedies import DOCS_URL
from karrot.text import shell_word
from karrot.web.api.routes import asked_key
from karrot.web.auth import require_reader
from karrot.web.context import compress, if_readable, web_context
from karrot.web.error_answers import Problem
from karrot.web.pages.group_list import badness

_SUBJECTS = {"karrot-consumers": "Consumer groups", "karrot-burrow": "Burrow and Kafka", "karrot-service": "Karrot"}
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}|\{\{ with .*?\{\{ end \}\}")
_EXAMPLES = {"cluster": "prod-eu", "group": "orders", "topic": "orders.v1", "partition": "3", "position": "4711"}
_EXAMPLES |= {"brokers": "kafka-1:9092", "burrow": "http://burrow:8000", "karrot": "http://karrot:5000"}
_EXAMPLES |= {"place": "orders.v1:3"}
"""The names and addresses in the runbooks, which are those of one example."""

_URL = r"'?(?P<url>http://(?:burrow:8000|karrot:5000))(?P<path>[^\s']*)'?"
_NAMES = r"(?P<name>kafka-1:9092|orders\.v1(?::3\b)?|\borders\b|\bprod-eu\b|(?<=--partition )3\b|\b4711\b)"
_IN_SHELL, _IN_PROMQL = re.compile(f"{_URL}|{_NAMES}"), re.compile('(?<==")(prod-eu|orders)(?=")')

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


def _html(name: str, values: Mapping[str, str], query: Mapping[str, Any]) -> Markup:
    """Render a runbook without its title to HTML, with links to other runbooks and the online documentation.

    In commands and queries, the ``values`` replace the examples. The ``query`` goes on to the other runbooks.
    """
    _open, _title, _close, *tokens = _MARKDOWN.parse((runbooks_dir() / f"{name}.md").read_text(encoding="utf-8"))
    by_example = {example: values[name] for name, example in _EXAMPLES.items() if name in values}
    for token in tokens:
        token.content = _filled(token.content, token.info, by_example) if token.type == "fence" else token.content
        for part in token.children or ():
            if part.type == "link_open":
                target = str(part.attrGet("href"))
                name = target.removesuffix(".md")
                here = url_for("runbooks.show_runbook", name=name, **query) if name in _alerts() else None
                part.attrSet("href", here or urljoin(f"{DOCS_URL}/runbooks/", target))
            elif part.type == "code_inline":
                part.content = _filled(part.content, "shell", by_example)
    return Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))  # noqa: S704 (made without HTML of its source)


def _filled(code: str, language: str, by_example: Mapping[str, str]) -> str:
    """Replace the examples in code. Each value is one word of its language, so that no name can break out of a line."""

    def value(example: str) -> str:
        return by_example.get(example, example)

    def in_shell(found: re.Match[str]) -> str:
        path = re.sub("prod-eu|orders", lambda name: quote(value(name[0]), safe=""), found["path"] or "")
        return shell_word(value(found["name"] or found["url"]).removesuffix("/" * bool(path)) + path)

    if language == "promql":
        return _IN_PROMQL.sub(lambda name: promql_text(value(name[0])), code)
    return _IN_SHELL.sub(in_shell, code) if language == "shell" and by_example else code


def _values(key: GroupKey) -> dict[str, str]:
    """The names and addresses of a group, under the names of the examples. Empty if no stored event names the group."""
    context = web_context()
    state, newest = context.log.group(key), context.log.recent([key], 1)[0]
    if state is None and not newest:
        return {}
    known = gather(context.log, state) if state else None
    at = find(known).at or min(known.partitions, key=badness, default=None) if known else None
    values = names_of(key, context.effective_settings(), at)
    values |= {"karrot": context.external_url or request.host_url, "source": (state or newest[0]).summary.source.value}
    unknown = (None, _EXAMPLES["brokers"], _EXAMPLES["burrow"])
    return {name: str(value) for name, value in values.items() if value not in unknown}


@routes.get("/runbooks")
def list_runbooks() -> str:
    """List all alerts with links to their runbooks."""
    subjects = groupby(_alerts().values(), key=lambda alert: alert.subject)
    return render_template("runbooks.html", subjects=[(subject, list(alerts)) for subject, alerts in subjects])


@routes.get("/runbooks/<name>")
def show_runbook(name: str) -> str:
    """Show one runbook, for the group in the query. The name may end in ``.md``, as in links of Prometheus's rules."""
    alert = _alerts().get(name.removesuffix(".md"))
    if alert is None:
        raise Problem("not_found", "No alert has this name. `/runbooks` lists all alerts.")
    key = asked_key() if {"cluster", "consumer"} & request.args.keys() else None
    values = if_readable(lambda: _values(key), {}) if key else {}
    text = _html(alert.name, values, key._asdict() if key else {})
    examples = [example for name, example in _EXAMPLES.items() if name not in {"place", *values}]
    return render_template("runbook.html", alert=alert, text=text, key=key, values=values, examples=examples)
