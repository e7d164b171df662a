"""Makes each question of ``docs/questions.md`` a result of the search, which leads to the page of the answer.

The search wants every word of a query in one entry. A person asks in words that the page of the answer does not have.
Of the entries that match, the first ones of the index come first.
"""

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from tools.docs_site.site_map import Page, SiteError
from tools.docs_site.site_markdown import COMMON_MARK

PLACE = "questions.md"
LAST = frozenset({"benchmarks.md", "changelog.md"})
"""Pages that mention almost everything, and explain little of it."""

_ROW = re.compile(r"^\| \[(?P<question>[^|\]]+)\]\((?P<target>[^)]+)\) \| (?P<answer>[^|]+) \|$", re.MULTILINE)


def with_questions(index: dict[str, Any], pages: list[Page], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the index of the search with one more entry for each question, before all others. `LAST` come last.

    An answer can end with a comment of further words by which the search finds it.
    Raises ``SiteError`` if the page of questions has no question, or if the page of an answer is not in the index.
    """
    addresses = {page.place: page.address for page in pages}
    paths = {each["location"].partition("#")[0]: each["path"] for each in index["items"]}
    rows = []
    for row in _ROW.finditer(texts.get(PLACE, "")):
        place, mark, anchor = row["target"].partition("#")
        address = addresses.get(posixpath.normpath(place))
        if address not in paths:
            raise SiteError(f"{PLACE}: the search has no page for {row['target']}")
        rows.append(
            {
                "location": f"{address}{mark}{anchor}",
                "level": 2,
                "title": row["question"],
                "text": _with_words(row["answer"]),
                "path": paths[address],
                "tags": [],
            }
        )
    if not rows:
        raise SiteError(f"{PLACE}: the page has no question")
    last = {addresses[place] for place in LAST & addresses.keys()}
    items = sorted(index["items"], key=lambda each: each["location"].partition("#")[0] in last)
    return {**index, "items": [*rows, *items]}


def _with_words(answer: str) -> str:
    said, _, words = answer.removesuffix("-->").partition("<!--")
    text = f"<p>{COMMON_MARK.renderInline(said.strip())}</p>"
    return f"{text}<p>{words.strip()}</p>" if words else text
