"""Every link of every page leads somewhere, and so does every page that a text of Karrot names."""

import ast
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from werkzeug.exceptions import NotFound

import karrot
from karrot.runbooks_and_remedies import CODES
from support.web.website import Website, make_website
from support.web.website_states import website_in_state

PACKAGE = Path(karrot.__file__).parent
_NAMED = re.compile(r"(?:\{(?:base|url|address|[\w.]*karrot_url|(?:seen|karrot)\.url)\}|`)(/[a-z][\w./-]*)")
"""A path in a text of Karrot: after its URL, or between backticks."""

_OF_OTHERS = ("/v3/", "/task", "/proc", "/tmp", "/status", "/lag", "/api/v1/targets")
"""The routes of Burrow, ECS and Prometheus, and Linux' files."""

_UNNAMED = {
    "/reporters/": "/reporters/stdout",
    "/runbooks/": "/runbooks/KarrotAbsent",
    "/api/v1": "/api/v1/groups",
    "/api/v1/": "/api/v1/groups",
}
"""Texts that end where the name of a reporter, an alert or a subject follows."""


@pytest.mark.parametrize("state", ["empty", "failing", "markup", "replicas", "database-away"])
def test_every_link_of_every_page_leads_to_a_page(state: str) -> None:
    website = website_in_state(state)
    found, waiting, broken = {"/"}, ["/"], {}
    while waiting:
        answer = website.client.get(path := waiting.pop(), headers={"Accept": "text/html"})
        if answer.status_code != 200:
            broken[path] = answer.status_code
        text = re.sub(r'<form [^>]*method="post"[^>]*>', "", answer.text)
        links = re.findall(r'(?:href|src|action)="(/[^"]*)', text) if answer.mimetype == "text/html" else ()
        for link in map(unescape, links):
            if _kind(link) not in found:
                found.add(_kind(link))
                waiting.append(link)
    assert broken == {}
    assert {"/reporters", "/rejects", "/runbooks", "/metrics", "/openapi.json"} <= found


def _kind(link: str) -> str:
    """The part of a link that decides where it leads: all groups and all pages of a list are alike."""
    path, _, query = link.partition("?")
    return "?".join([path, *sorted(each.partition("=")[0] for each in query.split("&") if each)])


def test_a_page_that_a_text_names_exists() -> None:
    website, named = make_website(), set(_named_paths())
    assert {"/rejects", "/reporters/", "/config", "/runbooks/KarrotNoLeader"} <= named
    assert {path for path in named if not _exists(website, path)} == set()


def _named_paths() -> Iterator[str]:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield from _NAMED.findall(ast.unparse(node))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from _NAMED.findall(node.value)


def _exists(website: Website, path: str) -> bool:
    if path.startswith(_OF_OTHERS):
        return True
    routes = website.client.application.url_map.bind("karrot")
    try:
        routes.match(_UNNAMED.get(path, path.rstrip(".")))
    except NotFound:
        return False
    runbook = re.fullmatch(r"/runbooks/(\w+)", path)
    return runbook is None or website.client.get(path).status_code == 200


def test_the_pages_of_remedies_exist() -> None:
    website = make_website()
    texts = " ".join(each.remedy for each in CODES.values())
    assert [path for path in _NAMED.findall(texts) if not _exists(website, path)] == []
