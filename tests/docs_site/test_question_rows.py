"""What an operator asks is found by the site's search, and leads to the page of the answer."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tools.docs_site.question_rows import PLACE, with_questions
from tools.docs_site.site_map import Page, SiteError, site_map
from tools.docs_site.site_markdown import SiteMarkdown

ROOT = Path(__file__).resolve().parents[2]
SEPARATOR = tomllib.loads((ROOT / "tools/docs_site/zensical.toml").read_text(encoding="utf-8"))["project"]["plugins"][
    "search"
]["separator"]


def entry(address: str) -> dict[str, Any]:
    return {"location": address, "level": 1, "title": "A page", "text": "", "path": ["Start"], "tags": []}


@pytest.fixture(scope="module")
def questions() -> list[dict[str, Any]]:
    """The entries of the search that the page of questions gives, first to last."""
    found = site_map(ROOT)
    [page] = [each for each in found.pages if each.place == PLACE]
    text = SiteMarkdown(ROOT, found.pages, "https://example.org").of(page)
    index = {"items": [entry(each.address) for each in found.pages]}
    items: list[dict[str, Any]] = with_questions(index, found.pages, {PLACE: text})["items"]
    return items[: -len(found.pages)]


def words(text: str) -> set[str]:
    return set(filter(None, re.split(SEPARATOR, re.sub(r"<[^>]+>|[.?;]", " ", text).casefold())))


@pytest.mark.parametrize(
    ("asked", "page"),
    [
        ("which consumer is behind", "pages/#-which-group-since-when-and-why"),
        ("how long will it take", "signals/"),
        ("is the monitor itself alive", "alerts/#alerts"),
        ("scale ECS by lag", "cloudwatch/#from-nothing-to-a-service-that-scales"),
        ("scale by KEDA without Prometheus", "scaling-on-kubernetes/"),
        ("keda null", "scaling-on-kubernetes/"),
        ("delete a group", "burrow/#resync-karrot_burrow_url"),
        ("move to PostgreSQL", "high-availability/#move-from-sqlite-to-postgresql"),
        ("what does STOP mean", "glossary/#burrow"),
        ("upgrade from 2019", "migrating/#the-first-karrot"),
        ("lag in seconds accuracy", "signals/#how-exact-the-signals-are"),
        ("consumer groups behind terminal", "reference/commands/#karrot-groups"),
        ("how accurate lag in seconds", "signals/#how-exact-the-signals-are"),
        ("deadman", "alerts/#alerts"),
        ("event log postgres without losing events", "high-availability/#move-from-sqlite-to-postgresql"),
        ("KARROT_COMPAT", "migrating/#the-first-karrot"),
        ("IAM policy", "cloudwatch/#iam-permissions"),
        ("cloudwatch permissions", "cloudwatch/#iam-permissions"),
        ("large cluster without Burrow", "evaluate/"),
        ("TLS certificate renewal", "operations/#renewed-certificates-and-secrets"),
        ("rotate API token", "operations/#renewed-certificates-and-secrets"),
        ("leave out console consumers", "without-burrow/#choose-groups-and-topics"),
        ("stuck partition owner", "pages/#group-one-group"),
        ("forget a cluster", "reference/commands/#karrot-forget-cluster"),
        ("forget a group", "burrow/#resync-karrot_burrow_url"),
        ("no events arrive", "burrow/#karrot-doctor"),
    ],
)
def test_a_question_leads_to_the_page_of_its_answer(asked: str, page: str, questions: list[dict[str, Any]]) -> None:
    """The search shows an entry if it has every word, and these entries come first."""
    found = [each["location"] for each in questions if words(asked) <= words(f"{each['title']} {each['text']}")]
    assert found[:1] == [page]


def test_pages_that_mention_almost_everything_come_last() -> None:
    pages = [Page(each, each, each) for each in ("questions.md", "benchmarks.md", "alerts.md")]
    index = {"items": [entry(each.address) for each in pages]}
    items = with_questions(index, pages, {PLACE: "| [Why?](alerts.md) | Because. |"})["items"]
    assert [each["location"] for each in items] == ["alerts/", "questions/", "alerts/", "benchmarks/"]


def test_each_row_of_the_page_is_a_question(questions: list[dict[str, Any]]) -> None:
    rows = [line for line in (ROOT / "docs" / PLACE).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(questions) == len(rows) - 2


@pytest.mark.parametrize(
    ("row", "reason"),
    [("| [Why?](gone.md) | Because. |", "the search has no page for gone.md"), ("| a | b |", "no question")],
)
def test_a_row_without_a_page_and_a_page_without_a_row_are_named(row: str, reason: str) -> None:
    with pytest.raises(SiteError, match=reason):
        with_questions({"items": [entry("one/")]}, [Page("docs/one.md", "one.md", "One")], {PLACE: row})
