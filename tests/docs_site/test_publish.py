"""Each release puts its site next to the earlier ones, and a repeated release changes nothing."""

import json
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tools.docs_site.publish import publish_charts, publish_site

ADDRESS = "https://docs.example.org/karrot"
DOWNLOADS = "https://git.example.org/karrot/releases/download"


def site(place: Path, version: str) -> Path:
    pages = {"index.html": f'<i class="karrot-version">{version}</i>', "runbooks/Silent/index.html": version}
    for name, text in {**pages, "404.html": "", "llms.txt": version, "assets/icon.svg": "<svg/>"}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


def everything(pages: Path) -> dict[str, bytes]:
    return {str(each.relative_to(pages)): each.read_bytes() for each in pages.rglob("*") if each.is_file()}


def release(tmp_path: Path, version: str) -> str:
    return publish_site(site(tmp_path / f"site-{version}", version), tmp_path / "pages", version, ADDRESS)


def versions(tmp_path: Path) -> Any:
    return [
        (each["version"], each["title"], each["aliases"])
        for each in json.loads((tmp_path / "pages" / "versions.json").read_text())
    ]


@pytest.fixture(autouse=True)
def pages(tmp_path: Path) -> Path:
    (tmp_path / "pages").mkdir()
    return tmp_path / "pages"


def test_the_newest_final_version_is_the_latest_and_comes_before_older_ones(tmp_path: Path) -> None:
    assert [release(tmp_path, each) for each in ("2.0.0a1", "2.0.0", "2.10.0", "2.9.0", "2.11.0rc1")] == [
        "2.0",
        "2.0",
        "2.10",
        "2.10",
        "2.10",
    ]
    assert versions(tmp_path) == [
        ("2.11", "2.11.0rc1", []),
        ("2.10", "2.10.0", ["latest"]),
        ("2.9", "2.9.0", []),
        ("2.0", "2.0.0", []),
    ]


def test_a_link_without_a_version_leads_to_the_newest_final_version(tmp_path: Path, pages: Path) -> None:
    for each in ("2.0.0", "2.1.0", "2.2.0a1"):
        release(tmp_path, each)
    forward = (pages / "runbooks" / "Silent" / "index.html").read_text()
    assert f'content="0; url={ADDRESS}/2.1/runbooks/Silent/"' in forward
    assert f'location.replace("{ADDRESS}/2.1/runbooks/Silent/" + location.search + location.hash)' in forward
    assert f"url={ADDRESS}/2.1/" in (pages / "index.html").read_text()
    assert (pages / "assets" / "icon.svg").read_text() == "<svg/>"
    assert (pages / "llms.txt").read_text() == "2.1.0"


def test_a_repeated_release_changes_nothing(tmp_path: Path, pages: Path) -> None:
    release(tmp_path, "2.0.0")
    release(tmp_path, "2.1.0")
    before = everything(pages)
    release(tmp_path, "2.1.0")
    release(tmp_path, "2.0.0")
    assert everything(pages) == before


def test_the_site_of_an_older_patch_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    release(tmp_path, "2.0.1")
    with pytest.raises(click.ClickException, match=r"^2\.0/ has the site of 2\.0\.1, which is newer than 2\.0\.0$"):
        release(tmp_path, "2.0.0")


def test_the_site_of_another_version_is_stale(tmp_path: Path, pages: Path) -> None:
    with pytest.raises(click.ClickException, match=r"is the site of 2\.0\.0, not of 2\.1\.0: build it again$"):
        publish_site(site(tmp_path / "site", "2.0.0"), pages, "2.1.0", ADDRESS)
    assert everything(pages) == {}


def chart(dist: Path, name: str, version: str) -> None:
    dist.mkdir(exist_ok=True)
    text = f"apiVersion: v2\nname: {name}\nversion: {version}\n".encode()
    with tarfile.open(dist / f"{name}-{version}.tgz", "w:gz") as archive:
        member = tarfile.TarInfo(f"{name}/Chart.yaml")
        member.size = len(text)
        archive.addfile(member, BytesIO(text))


def test_the_index_keeps_a_version_of_a_chart_where_it_was_first_published(tmp_path: Path, pages: Path) -> None:
    dist = tmp_path / "dist"
    chart(dist, "burrow", "0.1.0")
    chart(dist, "karrot", "0.1.0")
    publish_charts(dist, pages / "charts", f"{DOWNLOADS}/v2.0.0")
    (dist / "karrot-0.1.0.tgz").unlink()
    chart(dist, "karrot", "0.2.0")
    for _ in range(2):
        publish_charts(dist, pages / "charts", f"{DOWNLOADS}/v2.1.0")
    index = yaml.safe_load((pages / "charts" / "index.yaml").read_text())
    assert {
        name: {each["version"]: each["urls"] for each in entries} for name, entries in index["entries"].items()
    } == {
        "burrow": {"0.1.0": [f"{DOWNLOADS}/v2.0.0/burrow-0.1.0.tgz"]},
        "karrot": {
            "0.1.0": [f"{DOWNLOADS}/v2.0.0/karrot-0.1.0.tgz"],
            "0.2.0": [f"{DOWNLOADS}/v2.1.0/karrot-0.2.0.tgz"],
        },
    }
    assert [each.name for each in (pages / "charts").iterdir()] == ["index.yaml"]
