"""The sections and the pages of the site come from ``docs/index.md``."""

from pathlib import Path

import pytest

from tools.docs_site.site_map import SiteError, is_path, site_map

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "README.md": "# Karrot\n",
        "docs/index.md": "# All pages\n\n## Start\n\n| you want to | read |\n| --- | --- |\n"
        "| install Karrot | [Install it](../README.md) |\n| know what to do | [runbooks](runbooks) |\n\n"
        "## Why, and how it is built\n\n| | |\n| --- | --- |\n| know why | [decisions/](decisions/README.md) |\n",
        "docs/runbooks/Silent.md": "# Burrow is `silent`\n",
        "docs/decisions/README.md": "# Decisions\n",
        "docs/decisions/0001-one.md": "# 0001 One\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_rows_of_the_index_are_the_pages_and_a_folder_stands_for_its_pages(tree: Path) -> None:
    found = site_map(tree)
    assert [(section.title, [page.title for page in section.pages]) for section in found.sections] == [
        ("Start", ["Install it", "Runbooks"]),
        ("Why", ["Decisions"]),
    ]
    assert [(page.source, page.address, page.title) for page in found.pages] == [
        ("docs/index.md", "", "Karrot"),
        ("README.md", "install/", "Install it"),
        ("docs/runbooks", "runbooks/", "Runbooks"),
        ("docs/runbooks/Silent.md", "runbooks/Silent/", "Burrow is silent"),
        ("docs/decisions/README.md", "decisions/", "Decisions"),
        ("docs/decisions/0001-one.md", "decisions/0001-one/", "0001 One"),
    ]


def test_a_page_that_is_missing_from_the_index_and_a_row_to_no_file_are_named(tree: Path) -> None:
    (tree / "docs" / "forgotten.md").write_text("# Forgotten\n", encoding="utf-8")
    with (tree / "docs" / "index.md").open("a", encoding="utf-8") as index:
        index.write("| read a page that is gone | [gone.md](gone.md) |\n")
    with pytest.raises(SiteError) as refused:
        site_map(tree)
    assert str(refused.value).splitlines() == [
        "docs/index.md: the link to gone.md leads to no file",
        "docs/forgotten.md is not in the navigation: add a row that links to it to docs/index.md",
    ]


def test_a_page_without_a_title_is_named(tree: Path) -> None:
    (tree / "docs" / "runbooks" / "Silent.md").write_text("no title\n", encoding="utf-8")
    with pytest.raises(SiteError, match=r"Silent\.md has no title"):
        site_map(tree)


def test_every_page_of_the_documentation_is_on_the_site_in_seven_sections() -> None:
    found = site_map(ROOT)
    assert [section.title for section in found.sections] == [
        "Start", "Use", "Run", "Scale and send", "Tables", "Reference", "Why",
    ]  # fmt: skip
    assert {"install/", "runbooks/KarrotNoLeader/", "reference/settings/", "decisions/", "helm/karrot/"} <= {
        page.address for page in found.pages
    }


@pytest.mark.parametrize("text", ["signals.md", "../README.md", "examples/compose", "decisions/"])
def test_a_path_as_the_text_of_a_link_is_recognised(text: str) -> None:
    assert is_path(text)


@pytest.mark.parametrize("text", ["Prometheus and/or Grafana", "runbooks", "the table", "Install Karrot"])
def test_words_as_the_text_of_a_link_stay(text: str) -> None:
    assert not is_path(text)
