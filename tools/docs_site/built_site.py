"""Checks the built site: ``problems(site, pages, address)`` returns one sentence for each problem.

Each internal link must lead to a file and an anchor of the site, and each page must read as its Markdown does by
CommonMark. No page may load anything from another host.
"""

import posixpath
from collections.abc import Mapping
from difflib import SequenceMatcher
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_WATCHED = {"h1", "h2", "h3", "h4", "h5", "h6", "li", "pre", "table", "tr", "th", "td", "a", "img", "strong", "em"}
_LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("source", "srcset"), ("iframe", "src")}
_LINKS = {*_LOADS, ("a", "href")}
_NOT_LOADED = {"canonical", "alternate", "next", "prev", "edit"}
_SHOWN = 60


class BuiltPage(HTMLParser):
    """The links, the anchors and the text of one built page."""

    def __init__(self, html: str) -> None:
        """Read the page."""
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self._text: list[str] = []
        self._in_article = "<article" not in html
        self._skipped = 0
        self.feed(html)
        self.words = "".join(self._text).split()
        """The marks and the words of the page's article, in their order."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the element refers to and, in the article, that it is there."""
        has = {name: value or "" for name, value in attrs}
        self.anchors |= {has[name] for name in ("id", "name") if name in has}
        for name, value in has.items():
            if (tag, name) in _LINKS:
                self.links.append(value)
            if (tag, name) in _LOADS and has.get("rel") not in _NOT_LOADED:
                self.loads.append(value)
        self._in_article |= tag == "article"
        if self._skipped or has.get("class", "") in {"headerlink", "md-content__button md-icon"}:
            self._skipped += tag == "a"
        elif self._in_article and tag in _WATCHED and has.get("id") != "__skip":
            self._text.append(f" <{tag}> ")

    def handle_endtag(self, tag: str) -> None:
        """Note the end of the article."""
        self._in_article &= tag != "article"
        if tag == "a" and self._skipped:
            self._skipped -= 1

    def handle_data(self, data: str) -> None:
        """Note the words of the article."""
        if self._in_article and not self._skipped:
            self._text.append(data)


def problems(site: Path, expected: Mapping[str, str], address: str) -> list[str]:
    """Check the built site.

    ``expected`` has the CommonMark of each page by its address within the site, and ``address`` is the address of the
    site.
    """
    built = {
        file.relative_to(site).as_posix().removesuffix("index.html"): BuiltPage(file.read_text(encoding="utf-8"))
        for file in sorted(site.rglob("*.html"))
    }
    files = {file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file()}
    found = [f"the site has no page {place or '/'}" for place in expected if place not in built]
    for place, page in built.items():
        found += [f"{place or '/'}: loads {each} from another host" for each in page.loads if urlsplit(each).netloc]
        found += [reason for link in page.links if (reason := _wrong(place, link, built, files, address))]
        if place in expected and (difference := _difference(BuiltPage(expected[place]).words, page.words)):
            found.append(f"{place or '/'}: reads differently than its Markdown: {difference}")
    return list(dict.fromkeys(found))


def _wrong(place: str, link: str, built: Mapping[str, BuiltPage], files: set[str], address: str) -> str | None:
    """Return what is wrong with a link, or ``None``. Links to other sites are not checked."""
    parts = urlsplit(link.removeprefix(address) if link.startswith(address) else link)
    if parts.scheme or parts.netloc:
        return None
    base = "" if link.startswith(address) or place == "404.html" else place
    path = unquote(parts.path)
    if path.startswith("/"):
        path, base = path.removeprefix(urlsplit(address).path), ""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(base), path)) if path else place
    target = "" if target == "." else target
    page = next((each for each in (target, f"{target}/") if each in built), None)
    if page is None and target not in files:
        return f"{place or '/'}: the link {link} leads to no page"
    if page is not None and parts.fragment and unquote(parts.fragment) not in built[page].anchors:
        return f"{place or '/'}: the link {link} leads to no anchor of its page"
    return None


def _difference(expected: list[str], built: list[str]) -> str | None:
    """Return the first difference between two texts, or ``None``."""
    if expected == built:
        return None
    for kind, first, last, began, ended in SequenceMatcher(None, expected, built, autojunk=False).get_opcodes():
        if kind != "equal":
            before = " ".join(expected[max(0, first - 5) : first])
            is_now = " ".join(built[began:ended])[:_SHOWN]
            return f"after '{before}' it has '{is_now}' instead of '{' '.join(expected[first:last])[:_SHOWN]}'"
    return None
