"""Builds the documentation site into ``build/site``: ``python -m tools.docs_site``, which is ``make site``.

The pages and their order come from ``docs/index.md``, and the public addresses from ``project.urls`` in
``pyproject.toml``. The build fails with a sentence for each broken link, each page that is missing from the navigation
and each page that reads differently on the site.
"""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from tools.docs_site.built_site import problems
from tools.docs_site.question_rows import with_questions
from tools.docs_site.reference_rows import has_rows, with_anchors, with_rows
from tools.docs_site.site_map import Page, SiteError, SiteMap, site_map
from tools.docs_site.site_markdown import COMMON_MARK, SiteMarkdown, first_sentence

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
_BRANCH = "main"
_COPIED = {"templates/web/static/icon.svg": "assets/icon.svg", "tools/docs_site/theme.css": "assets/karrot.css"}


@click.command(help=__doc__)
@click.option("--root", type=click.Path(path_type=Path), default=ROOT, help="The checkout with the pages.")
@click.option("--build", type=click.Path(path_type=Path), default=ROOT / "build", help="The folder to write to.")
@click.option(
    "--folder", help="The site's folder below the public address, such as 2.1. The site then has a version switch."
)
def main(root: Path, build: Path, folder: str | None) -> None:
    """Build the site and check it."""
    try:
        pages = build_site(root.resolve(), build.resolve(), folder)
    except SiteError as error:
        raise click.ClickException(f"the site is not built:\n{error}") from error
    click.echo(f"{build / 'site'}: {pages} pages, and every internal link leads to a page")


def build_site(root: Path, build: Path, folder: str | None = None) -> int:
    """Build the site into ``build/site`` and return the number of its pages. Raise ``SiteError`` with all problems.

    With a folder, the site is one of several versions: it is for this folder of the public address, and its header has
    a switch that reads the list of the versions (``publish.py``).
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = project["urls"]["Repository"].rstrip("/")
    address = project["urls"]["Documentation"].rstrip("/") + (f"/{folder}/" if folder else "/")
    found = site_map(root)
    texts = _texts(root, found, SiteMarkdown(root, found.pages, f"{repository}/blob/{_BRANCH}"), build / "site-source")
    texts[found.index.place] = _home(found, texts[found.index.place])
    for page in found.pages:
        about: dict[str, Any] = {"title": page.title, "description": _description(page, project)}
        if (root / page.source).is_file():
            about["edit"] = f"{repository}/edit/{_BRANCH}/{page.source}"
        if has_rows(texts[page.place]):
            about["hide"] = ["toc"]  # the room is for the columns of the table
        if page is found.index:
            # The page is itself the navigation, and in the search its rows would come before the pages.
            about |= {"home": True, "hide": ["navigation"], "search": {"exclude": True}}
        front = "".join(f"{key}: {json.dumps(value)}\n" for key, value in about.items())
        file = build / "site-source" / page.place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"---\n{front}---\n\n{texts[page.place]}", encoding="utf-8")
    for source, place in _COPIED.items():
        _copy(ROOT / source, build / "site-source" / place)
    shutil.copytree(HERE / "theme", build / "site-theme", dirs_exist_ok=True)
    shutil.rmtree(build / "site", ignore_errors=True)
    configuration = build / "zensical.toml"
    configuration.write_text(
        _configuration(found, project, repository, address, switch=folder is not None), encoding="utf-8"
    )
    _run_zensical(configuration)
    for page in found.pages:
        file = build / "site" / page.place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(texts[page.place], encoding="utf-8")
    (build / "site" / "llms.txt").write_text(llms_txt(found, texts, project, address), encoding="utf-8")
    index = build / "site" / "search.json"
    rows = with_rows(json.loads(index.read_text(encoding="utf-8")), found.pages, texts)
    rows = with_questions(rows, found.pages, texts)
    index.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    expected = {page.address: COMMON_MARK.render(texts[page.place]) for page in found.pages}
    if wrong := problems(build / "site", expected, address):
        raise SiteError("\n".join(wrong))
    return len(found.pages)


def llms_txt(found: SiteMap, texts: dict[str, str], project: dict[str, Any], address: str) -> str:
    """Return ``llms.txt``: what Karrot is, and one line for the Markdown of each page."""
    lines = ["# Karrot", "", f"> {project['description']}.", ""]
    lines += [f"Version {project['version']}. Each address below is the Markdown of a page.", ""]
    for section in found.sections:
        lines += [f"## {section.title}", ""]
        for page in (each for listed in section.pages for each in (listed, *listed.children)):
            about = page.wish or first_sentence(texts[page.place])
            lines.append(f"- [{page.title}]({address}{page.place}): {about}")
        lines.append("")
    return "\n".join(lines)


def _texts(root: Path, found: SiteMap, markdown: SiteMarkdown, source: Path) -> dict[str, str]:
    """Return the Markdown of each page by its place, and copy the images."""
    shutil.rmtree(source, ignore_errors=True)
    texts, wrong = {}, []
    for page in found.pages:
        try:
            texts[page.place] = with_anchors(page, markdown.of(page))
        except SiteError as error:
            wrong.append(str(error))
    if wrong:
        raise SiteError("\n".join(wrong))
    for image, place in markdown.images.items():
        _copy(root / image, source / place)
    return texts


def _home(found: SiteMap, text: str) -> str:
    """Return the first page: the first section, and one link to each other section. The menu has all pages."""
    about, start, *_ = text.split("\n## ")
    more = " · ".join(f"[{section.title}]({section.pages[0].place})" for section in found.sections[1:])
    return f"{about}\n## {start}\nEverything else is in the menu: {more}\n"


def _configuration(found: SiteMap, project: dict[str, Any], repository: str, address: str, *, switch: bool) -> str:
    """Return Zensical's configuration: the settings that depend on the project, then those of ``zensical.toml``."""
    navigation = [
        {"Home": found.index.place},
        *({section.title: [_entry(page) for page in section.pages]} for section in found.sections),
    ]
    settings: dict[str, Any] = {
        "site_name": "Karrot",
        "site_description": f"{project['description']}.",
        "site_url": address,
        "repo_url": repository,
        "repo_name": urlsplit(repository).path.strip("/"),
        "copyright": f"Karrot {project['version']}",
        "docs_dir": "site-source",
        "site_dir": "site",
        "extra_css": ["assets/karrot.css"],
        # "mike" is the name of the format of versions.json, and not a program that runs here.
        "extra": {"karrot_version": project["version"]} | ({"version": {"provider": "mike"}} if switch else {}),
        "nav": navigation,
    }
    lines = "".join(f"{key} = {_toml(value)}\n" for key, value in settings.items())
    return f"[project]\n{lines}\n{(HERE / 'zensical.toml').read_text(encoding='utf-8')}"


def _entry(page: Page) -> dict[str, Any]:
    return {page.title: [page.place, *(_entry(each) for each in page.children)] if page.children else page.place}


def _toml(value: Any) -> str:
    """Return a text, a list or a table as TOML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_toml(each)}' for key, each in value.items())} }}"
    return json.dumps(value)


def _description(page: Page, project: dict[str, Any]) -> str:
    return page.wish[:1].upper() + page.wish[1:] + "." if page.wish else f"{project['description']}."


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _run_zensical(configuration: Path) -> None:
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(configuration)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        said = built.stdout + built.stderr.partition("Traceback")[0]
        raise SiteError(f"zensical found a problem:\n{said.strip() or built.stderr}")


if __name__ == "__main__":
    main()
