"""Puts a built site next to its other versions: ``python -m tools.docs_site.publish --tag v2.1.0 --pages PAGES``.

``PAGES`` is the work tree of the branch that the public address serves. The site's folder is the minor version, such as
``2.1``: a patch release replaces it. ``versions.json`` lists the versions for the switch. Links without a version, such
as those of alerts to their runbooks, lead to the newest version: the root has a redirect for each of its pages. The
charts of ``make dist`` go into the index ``charts/index.yaml``. A second run changes nothing.
"""

import json
import re
import shutil
from html import escape
from pathlib import Path

import click
import helm_python

from tools.public_addresses import public_addresses
from tools.release import is_prerelease, minor, precedence

ROOT = Path(__file__).resolve().parents[2]
_FORWARD = """<!doctype html>
<meta charset="utf-8">
<title>Karrot</title>
<link rel="canonical" href="{address}">
<meta http-equiv="refresh" content="0; url={address}">
<script>location.replace({script} + location.search + location.hash)</script>
<a href="{address}">{address}</a>
"""


@click.command(help=__doc__)
@click.option("--tag", required=True, help="The tag of the release, such as v2.1.0.")
@click.option("--pages", type=click.Path(path_type=Path, file_okay=False), required=True, help="The work tree.")
@click.option("--site", type=click.Path(path_type=Path, exists=True), default=ROOT / "build" / "site")
@click.option("--dist", type=click.Path(path_type=Path, exists=True), default=ROOT / "dist")
def main(tag: str, pages: Path, site: Path, dist: Path) -> None:
    """Publish the site and the index of the charts into the work tree."""
    public = public_addresses(ROOT)
    pages.mkdir(parents=True, exist_ok=True)
    newest = publish_site(site, pages, tag.removeprefix("v"), public.documentation)
    publish_charts(dist, pages / "charts", f"{public.repository}/releases/download/{tag}")
    shutil.copy(ROOT / "helm" / "artifacthub-repo.yml", pages / "charts")
    (pages / ".nojekyll").touch()
    click.echo(f"{pages}: {minor(tag.removeprefix('v'))} is published, and {newest} is the newest version")


def publish_site(site: Path, pages: Path, version: str, address: str) -> str:
    """Put the site into its folder, list it, and return the folder of the newest version.

    Raise an error if the folder has the site of a newer release: an old release that is repeated must not replace it.
    """
    folder = minor(version)
    listing = pages / "versions.json"
    listed = json.loads(listing.read_text(encoding="utf-8")) if listing.exists() else []
    titles: dict[str, str] = {each["version"]: each["title"] for each in listed}
    if precedence(titles.get(folder, version)) > precedence(version):
        raise click.ClickException(f"{folder}/ has the site of {titles[folder]}, which is newer than {version}")
    built = re.search(r'"karrot-version">([^<]+)<', (site / "index.html").read_text(encoding="utf-8"))
    if built is None or built[1] != version:
        raise click.ClickException(f"{site} is the site of {built and built[1]}, not of {version}: build it again")
    titles[folder] = version
    order = sorted(titles, key=lambda each: precedence(titles[each]), reverse=True)
    newest = next((each for each in order if not is_prerelease(titles[each])), order[0])
    shutil.rmtree(pages / folder, ignore_errors=True)
    shutil.copytree(site, pages / folder)
    entries = [
        {"version": each, "title": titles[each], "aliases": ["latest"] if each == newest else []} for each in order
    ]
    listing.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    if newest == folder:
        _forward(pages / folder, pages, f"{address}/{folder}/")
    return newest


def publish_charts(dist: Path, charts: Path, address: str) -> None:
    """Add the packaged charts of a release to the index. A version that the index has stays as it is."""
    charts.mkdir(exist_ok=True)
    index = charts / "index.yaml"
    before = index.read_text(encoding="utf-8") if index.exists() else ""
    new = [each for each in sorted(dist.glob("*.tgz")) if f"/{each.name}\n" not in before]
    if not new:
        return
    for chart in new:
        shutil.copy(chart, charts)
    helm_python.repo_index_generate(charts, base_url=address, merge=index if before else None)
    for chart in new:
        (charts / chart.name).unlink()  # the release has the files; the index has their addresses


def _forward(site: Path, pages: Path, address: str) -> None:
    """Write a page at the root for each page of the newest version. It leads there, and keeps the anchor."""
    for page in site.rglob("index.html"):
        place = page.relative_to(site)
        target = address + ("" if place.parent == Path() else f"{place.parent.as_posix()}/")
        written = pages / place
        written.parent.mkdir(parents=True, exist_ok=True)
        text = _FORWARD.format(address=escape(target), script=json.dumps(target).replace("<", "\\u003c"))
        written.write_text(text, encoding="utf-8")
    # What has an address without a version of its own: the icon of the charts, and the pages for programs.
    for name in ("404.html", "llms.txt", "assets/icon.svg"):
        (pages / name).parent.mkdir(exist_ok=True)
        shutil.copy(site / name, pages / name)


if __name__ == "__main__":
    main()
