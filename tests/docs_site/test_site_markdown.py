"""The Markdown of a page is changed only where the site needs it."""

from pathlib import Path

import pytest

from tools.docs_site.site_map import Page, SiteError
from tools.docs_site.site_markdown import SiteMarkdown, first_sentence

FILES_AT = "https://git.example.org/karrot/blob/main"
PAGE = Page("docs/reference/one.md", "reference/one.md", "One")
RUNBOOK = Page("docs/runbooks/A.md", "runbooks/A.md", "A")
RUNBOOKS = Page("docs/runbooks", "runbooks/index.md", "Runbooks", "know what to do", (RUNBOOK,))
PAGES = [
    PAGE,
    Page("docs/other.md", "other.md", "The other page"),
    Page("examples/compose/README.md", "examples/compose.md", "Compose"),
    RUNBOOKS,
    RUNBOOK,
]


def site(root: Path, markdown: str) -> SiteMarkdown:
    files = ["docs/other.md", "examples/compose/README.md", "docs/runbooks/A.md", "docs/images/a.png", "tools/x.py"]
    for name in [PAGE.source, *files]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(markdown, encoding="utf-8")
    return SiteMarkdown(root, PAGES, FILES_AT)


@pytest.mark.parametrize(
    ("written", "changed"),
    [
        ("[there](../other.md#part)", "[there](../other.md#part)"),
        ("[other.md](../other.md)", "[The other page](../other.md)"),
        ("[`code`](../other.md)", "[`code`](../other.md)"),
        ("[folder](../../examples/compose)", "[folder](../examples/compose.md)"),
        ("[all](../runbooks)", "[all](../runbooks/index.md)"),
        ("[file](../../tools/x.py)", f"[file]({FILES_AT}/tools/x.py)"),
        ("![a picture](../images/a.png)", "![a picture](../images/a.png)"),
        ("[part](#part) [web](https://example.org/x.md)", "[part](#part) [web](https://example.org/x.md)"),
        ("`[code](gone.md)`", "`[code](gone.md)`"),
        ("```\n[code](gone.md)\n```\n", "```\n[code](gone.md)\n```\n"),
        ("- one\n\n  more\n\n  ```\n  code\n  ```\n", "- one\n\n    more\n\n    ```\n    code\n    ```\n"),
        ("1. one\n   - two\n     more\n", "1. one\n    - two\n        more\n"),
    ],
)
def test_links_lead_to_the_site_or_the_repository_and_code_stays(written: str, changed: str, tmp_path: Path) -> None:
    assert site(tmp_path, written).of(PAGE) == changed


def test_the_two_files_of_a_picture_become_an_image_for_each_colour_scheme(tmp_path: Path) -> None:
    picture = (
        '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="../images/a.png">\n'
        '  <img alt="A page" src="../images/a.png">\n</picture>\n'
    )
    markdown = site(tmp_path, picture)
    assert markdown.of(PAGE) == "![A page](../images/a.png#only-light)\n![A page](../images/a.png#only-dark)\n"
    assert markdown.images == {"docs/images/a.png": "images/a.png"}


def test_every_link_that_leads_to_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SiteError) as refused:
        site(tmp_path, "[one](gone.md)\n\n- [two](../away/)\n").of(PAGE)
    assert str(refused.value).splitlines() == [
        "docs/reference/one.md: the link to gone.md leads to no file",
        "docs/reference/one.md: the link to ../away/ leads to no file",
    ]


def test_a_folder_without_a_page_of_its_own_gets_a_list_of_its_pages(tmp_path: Path) -> None:
    assert site(tmp_path, "# A\n\nIt is late. More.\n").of(RUNBOOKS) == (
        "# Runbooks\n\nKnow what to do:\n\n- [A](A.md): It is late.\n"
    )


def test_the_first_sentence_of_a_page_has_no_links() -> None:
    assert first_sentence("# A\n\nSee [the\nlog](log.md) of 2.0. Then more.\n") == "See the log of 2.0."
