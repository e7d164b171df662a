"""Makes a page's Markdown for the site: ``SiteMarkdown(root, pages, files_at).of(page)``.

The pages are written for GitHub, which reads CommonMark and shows every file of the repository. Zensical reads Markdown
by older rules, and the site has only the documentation. So this module changes four things:

- a link to a page of the site leads to this page, and a link to another file leads to the repository;
- the content of a list item is indented by four spaces, as Zensical needs it;
- a picture with a file for dark screens becomes two images, so that the site's switch decides between them;
- a link whose text is the path of a page gets the title of the page as its text.
"""

import posixpath
import re
from pathlib import Path, PurePosixPath

from markdown_it import MarkdownIt

from tools.docs_site.site_map import Page, SiteError, is_path

COMMON_MARK = MarkdownIt("commonmark").enable("table")
_INDENT = 4
_LINK_OR_CODE = re.compile(
    r"(?P<code>(?P<ticks>`+).+?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<text>\[[^\[\]`]*)?\]\((?P<target>[^()\s]+)\)",
    re.DOTALL,
)
_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img alt="(?P<alt>[^"]+)" src="(?P<light>[^"]+)">\s*</picture>'
)
_TWO_IMAGES = r"![\g<alt>](\g<light>#only-light)\n![\g<alt>](\g<dark>#only-dark)"
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#", re.IGNORECASE)
_IMAGES = {".png", ".svg"}


class SiteMarkdown:
    """Makes the Markdown of all pages of one site."""

    def __init__(self, root: Path, pages: list[Page], files_at: str) -> None:
        """``files_at`` is the address under which the repository shows its files, without ``/`` at its end."""
        self._root = root
        self._pages = {page.source: page for page in pages}
        for page in pages:
            if page.source.endswith("/README.md"):
                self._pages[page.source.removesuffix("/README.md")] = page
        self._files_at = files_at
        self.images: dict[str, str] = {}
        """The images that the pages show: the file in the repository, and its place in the site's source."""

    def of(self, page: Page) -> str:
        """Return the Markdown of one page. Raise ``SiteError`` if a link leads to no file."""
        path = self._root / page.source
        text = _list_of(page, self._root) if path.is_dir() else path.read_text(encoding="utf-8")
        problems: list[str] = []

        def changed(found: "re.Match[str]") -> str:
            try:
                return self._changed(page, found)
            except SiteError as error:
                problems.append(str(error))
                return found[0]

        pieces = [
            piece if is_code else _LINK_OR_CODE.sub(changed, piece)
            for is_code, piece in _split(_indented(_PICTURE.sub(_TWO_IMAGES, text)))
        ]
        if problems:
            raise SiteError("\n".join(problems))
        return "".join(pieces)

    def _changed(self, page: Page, found: "re.Match[str]") -> str:
        if found["code"]:
            return found["code"]
        target = self._target(page, found["target"])
        if found["text"] is None:
            return f"]({target})"
        text = found["text"][1:]
        linked = self._linked(page, found["target"].partition("#")[0])
        title = self._pages[linked].title if linked in self._pages and is_path(text) else text
        return f"[{title}]({target})"

    def _target(self, page: Page, target: str) -> str:
        """Return the target of a link as the site needs it."""
        if _ELSEWHERE.match(target):
            return target
        path, mark, anchor = target.partition("#")
        here = posixpath.dirname(page.place) or "."
        linked = self._linked(page, path)
        if linked in self._pages:
            return posixpath.relpath(self._pages[linked].place, here) + mark + anchor
        file = self._root / linked
        if not file.exists():
            raise SiteError(f"{page.source}: the link to {target} leads to no file")
        if file.suffix in _IMAGES:
            self.images[linked] = linked.removeprefix("docs/")
            return posixpath.relpath(self.images[linked], here) + mark + anchor
        return f"{self._files_at}/{linked}{mark}{anchor}"

    def _linked(self, page: Page, path: str) -> str:
        """Return the path in the repository to which a link of the page leads."""
        is_folder = (self._root / page.source).is_dir()
        folder = PurePosixPath(page.source) if is_folder else PurePosixPath(page.source).parent
        return posixpath.normpath(posixpath.join(folder.as_posix(), path)) if path else page.source


def first_sentence(markdown: str) -> str:
    """Return the first sentence of a page's text, without links."""
    paragraph = markdown.split("\n\n")[1].replace("\n", " ")
    return re.split(r"(?<=\.)\s", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", paragraph))[0]


def _list_of(folder: Page, root: Path) -> str:
    """Return the page of a folder that has no ``README.md``: a list of its pages, with the first sentence of each."""
    wish = folder.wish[:1].upper() + folder.wish[1:]
    rows = [
        f"- [{page.title}]({PurePosixPath(page.source).name}): "
        f"{first_sentence((root / page.source).read_text(encoding='utf-8'))}\n"
        for page in folder.children
    ]
    return f"# {folder.title}\n\n{wish}:\n\n{''.join(rows)}"


def _indented(text: str) -> str:
    """Indent the content of list items by four spaces for each level, as Python-Markdown needs it."""
    lines = text.split("\n")
    added = [0] * len(lines)
    for token in COMMON_MARK.parse(text):
        if token.type == "list_item_open" and token.map:
            marker = len(token.info) + len(token.markup) + 1
            for number in range(token.map[0] + 1, token.map[1]):
                added[number] += max(0, _INDENT - marker)
    return "\n".join(" " * more + line if line.strip() else line for more, line in zip(added, lines, strict=True))


def _split(text: str) -> list[tuple[bool, str]]:
    """Split a page into blocks of code (``True``) and the paragraphs between them (``False``)."""
    lines = text.splitlines(keepends=True)
    pieces, began = [], 0
    fences = [token.map for token in COMMON_MARK.parse(text) if token.type in {"fence", "code_block"} and token.map]
    for first, last in fences:
        pieces += [(False, "".join(lines[began:first])), (True, "".join(lines[first:last]))]
        began = last
    return [*pieces, (False, "".join(lines[began:]))]
