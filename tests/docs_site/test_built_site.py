"""The check of the built site finds what is wrong, and says it in one sentence each."""

from pathlib import Path

import pytest

from tools.docs_site.built_site import problems

ADDRESS = "https://docs.example.org/karrot/"


def built(root: Path, article: str, head: str = "") -> Path:
    pages = {
        "index.html": '<article><h1 id="top">All</h1></article>',
        "404.html": '<a href="/karrot/one/">One</a>',
        "one/index.html": f"<head>{head}</head><body><article>{article}</article></body>",
    }
    for name, html in pages.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(html, encoding="utf-8")
    (root / "a.png").touch()
    return root


@pytest.mark.parametrize(
    "link",
    ["..", "../", "../#top", ".", "#here", "../a.png", f"{ADDRESS}one/", "https://example.org/gone", "mailto:a@b"],
)
def test_a_link_that_leads_to_a_page_a_file_or_another_site_is_right(link: str, tmp_path: Path) -> None:
    assert problems(built(tmp_path, f'<a href="{link}" id="here">x</a>'), {}, ADDRESS) == []


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("../gone/", "leads to no page"),
        ("../#gone", "leads to no anchor of its page"),
        ("#gone", "leads to no anchor of its page"),
        ("../b.png", "leads to no page"),
        (f"{ADDRESS}gone/", "leads to no page"),
    ],
)
def test_a_broken_link_is_named_with_its_page(link: str, reason: str, tmp_path: Path) -> None:
    assert problems(built(tmp_path, f'<a href="{link}">x</a>'), {}, ADDRESS) == [f"one/: the link {link} {reason}"]


def test_a_page_that_loads_from_another_host_is_named(tmp_path: Path) -> None:
    font = "https://fonts.example.org/a.css"
    head = f'<link rel="stylesheet" href="{font}"><link rel="canonical" href="{ADDRESS}one/">'
    assert problems(built(tmp_path, "", head), {}, ADDRESS) == [f"one/: loads {font} from another host"]


def test_a_page_that_reads_differently_than_its_markdown_is_named(tmp_path: Path) -> None:
    site = built(tmp_path, '<h1>One<a class="headerlink" href="#top">¶</a></h1>\n<p id="top">first 2. second</p>')
    expected = {"one/": "<h1>One</h1>\n<ol><li>first</li><li>second</li></ol>", "two/": ""}
    assert problems(site, expected, ADDRESS) == [
        "the site has no page two/",
        "one/: reads differently than its Markdown: after '<h1> One' it has '' instead of '<li>'",
    ]


def test_a_page_that_reads_as_its_markdown_is_right(tmp_path: Path) -> None:
    code = '<pre><span class="k">a</span>=<span>b</span></pre>'
    site = built(
        tmp_path,
        f'<a class="md-content__button md-icon" href="..">Edit</a><h1>One</h1>\n<ul><li><p>x</p></li></ul>{code}',
    )
    assert problems(site, {"one/": "<h1>One</h1><ul><li>x</li></ul><pre>a=b</pre>"}, ADDRESS) == []
