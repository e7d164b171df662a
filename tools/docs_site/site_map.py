"""Reads from ``docs/index.md`` which pages the site has, and in which order: ``site_map(root)``.

The site has each page that ``docs/index.md`` links to, in the section of the link. A link to a folder stands for all
pages of the folder.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

INDEX = "docs/index.md"
_HEADING = re.compile(
    r"^## (?P<heading>.+)$|^\| (?P<wish>[^|]+) \| \[(?P<text>[^\]]+)\]\((?P<target>[^)#]+)\) \|$", re.MULTILINE
)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_SHORT_NAMES = {"Why, and how it is built": "Why"}
_OTHER_PLACES = {"README.md": "install.md"}


class SiteError(Exception):
    """The site cannot be built. The text has one sentence a line."""


@dataclass(frozen=True)
class Page:
    """A page of the site."""

    source: str
    """The Markdown file in the repository. The page of a folder without a ``README.md`` has the folder's name."""
    place: str
    """The Markdown file in the site's source. It decides the address of the page."""
    title: str
    wish: str = ""
    """What the reader wants to do, from ``docs/index.md``."""
    children: tuple["Page", ...] = ()

    @property
    def address(self) -> str:
        """The address of the page, relative to the site's address."""
        folder = self.place.removesuffix(".md").removesuffix("index")
        return f"{folder.rstrip('/')}/" if folder else ""


@dataclass
class Section:
    """A heading of ``docs/index.md`` and its pages."""

    title: str
    pages: list[Page] = field(default_factory=list)


@dataclass(frozen=True)
class SiteMap:
    """All pages: the first page, and the sections of the others."""

    index: Page
    sections: tuple[Section, ...]

    @property
    def pages(self) -> list[Page]:
        """Every page, in the order of the navigation."""
        listed = [each for section in self.sections for page in section.pages for each in (page, *page.children)]
        return [self.index, *listed]


def site_map(root: Path) -> SiteMap:
    """Read ``docs/index.md``. Raise ``SiteError`` if a link leads nowhere, or if a page of ``docs/`` has no link."""
    sections: list[Section] = []
    problems = []
    for row in _HEADING.finditer((root / INDEX).read_text(encoding="utf-8")):
        if row["heading"]:
            sections.append(Section(_SHORT_NAMES.get(row["heading"], row["heading"])))
            continue
        source = _normal(PurePosixPath("docs") / row["target"])
        if (root / source).exists():
            sections[-1].pages.append(_page(root, source, row["text"], row["wish"]))
        else:
            problems.append(f"{INDEX}: the link to {row['target']} leads to no file")
    found = SiteMap(Page(INDEX, "index.md", "Karrot"), tuple(sections))
    sources = {each.source for each in found.pages}
    written = {path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")}
    problems += [
        f"{each} is not in the navigation: add a row that links to it to {INDEX}" for each in sorted(written - sources)
    ]
    places = Counter(each.place for each in found.pages)
    problems += [f"two links of {INDEX} lead to the page {place}" for place, times in places.items() if times > 1]
    if problems:
        raise SiteError("\n".join(problems))
    return found


def is_path(text: str) -> bool:
    """Return whether a link's text is a path. The site then shows the title of the page instead."""
    return re.fullmatch(r"[\w./-]*(?:/[\w.-]*|\.md)", text) is not None


def _page(root: Path, source: str, text: str, wish: str) -> Page:
    path = root / source
    if path.is_dir():
        return Page(
            source, f"{_place(source)}/index.md", PurePosixPath(source).name.capitalize(), wish, _pages_in(root, source)
        )
    if path.name == "README.md" and source.startswith("docs/"):
        folder = PurePosixPath(source).parent.as_posix()
        return Page(source, f"{_place(folder)}/index.md", title_of(path), wish, _pages_in(root, folder))
    return Page(source, _place(source), title_of(path) if is_path(text) else text, wish)


def _pages_in(root: Path, folder: str) -> tuple[Page, ...]:
    files = sorted(path for path in (root / folder).glob("*.md") if path.name != "README.md")
    sources = [path.relative_to(root).as_posix() for path in files]
    return tuple(Page(source, _place(source), title_of(root / source)) for source in sources)


def _place(source: str) -> str:
    """Return where a file is in the site's source. A ``README.md`` gets the name of its folder."""
    if source in _OTHER_PLACES:
        return _OTHER_PLACES[source]
    if source.startswith("docs/"):
        return source.removeprefix("docs/")
    path = PurePosixPath(source)
    if path.name == "README.md":
        path = path.parent.with_suffix(".md")
    return path.as_posix().lower()


def title_of(path: Path) -> str:
    """Return the first heading of a Markdown file, without the marks of code."""
    heading = _TITLE.search(path.read_text(encoding="utf-8"))
    if heading is None:
        raise SiteError(f"{path.name} has no title: begin the page with a line '# Title'")
    return heading[1].replace("`", "")


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
