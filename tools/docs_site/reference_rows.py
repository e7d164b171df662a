"""Makes each row of the reference's tables a result of the search: a setting, a metric, a code or a check.

Zensical's index has one entry for each heading. A search for the name of a setting would then find every page that
mentions the setting before the long table that defines it.
"""

import re
from collections.abc import Mapping
from typing import Any

from tools.docs_site.site_map import Page
from tools.docs_site.site_markdown import COMMON_MARK

_FOLDER = "reference/"
_ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<rest>.*) \|$", re.MULTILINE)
_ANCHORED_ROW = re.compile(r'^\| <a id="(?P<anchor>\w+)"></a>`(?P<name>\w+)` \| (?P<rest>.*) \|$', re.MULTILINE)


def with_anchors(page: Page, markdown: str) -> str:
    """Return the page with an anchor in each row that begins with a name. Only pages of the reference change."""
    if not page.place.startswith(_FOLDER):
        return markdown
    seen: set[str] = set()

    def anchored(row: "re.Match[str]") -> str:
        anchor = row["name"].lower()
        if anchor in seen:
            return row[0]
        seen.add(anchor)
        return f'| <a id="{anchor}"></a>`{row["name"]}` | {row["rest"]} |'

    return _ROW.sub(anchored, markdown)


def has_rows(markdown: str) -> bool:
    """Return whether a page has rows with anchors."""
    return _ANCHORED_ROW.search(markdown) is not None


def with_rows(index: dict[str, Any], pages: list[Page], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the index of the search with one more entry for each row that has an anchor, after those of its page."""
    items: list[dict[str, Any]] = list(index["items"])
    for page in pages:
        paths = [number for number, each in enumerate(items) if each["location"].partition("#")[0] == page.address]
        rows = [
            {
                "location": f"{page.address}#{row['anchor']}",
                "level": 2,
                "title": row["name"],
                "text": f"<p>{COMMON_MARK.renderInline(row['rest'].replace(' | ', ' · '))}</p>",
                "path": items[paths[-1]]["path"],
                "tags": [],
            }
            for row in _ANCHORED_ROW.finditer(texts[page.place])
            if paths
        ]
        if rows:
            items[paths[-1] + 1 : paths[-1] + 1] = rows
    return {**index, "items": items}
