"""What the charts tell Artifact Hub is complete, and agrees with the values and the public addresses."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from support.kubernetes.helm_charts import CHARTS, ROOT, Object, load_chart, read_values
from tools.docs_site.site_map import site_map
from tools.public_addresses import public_addresses
from tools.release import is_prerelease

PUBLIC = public_addresses(ROOT)
PREFIX = "artifacthub.io/"


@pytest.fixture(params=["burrow", "karrot"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def metadata(name: str) -> Object:
    return read_values(CHARTS / name / "Chart.yaml")


def annotation(name: str, key: str) -> Any:
    return yaml.safe_load(metadata(name)["annotations"][f"{PREFIX}{key}"])


def images(values: Any) -> Iterator[Object]:
    """Yield the images anywhere in the values of a chart."""
    if isinstance(values, dict):
        if "repository" in values and "tag" in values:
            yield values
        for each in values.values():
            yield from images(each)


def test_the_images_are_those_of_the_values(name: str) -> None:
    version = metadata(name)["appVersion"]
    own = {f"{each['repository']}:{each['tag'] or version}" for each in images(load_chart(name).values)}
    listed = annotation(name, "images")
    assert {each["image"] for each in listed} == own != set()
    for each in listed:
        if each["image"].startswith(f"{PUBLIC.registry}/"):
            assert each["platforms"] == ["linux/amd64", "linux/arm64"]


def test_karrots_images_are_in_the_public_registry() -> None:
    repositories = [each["repository"] for each in images(read_values(CHARTS / "karrot" / "values.yaml"))]
    assert repositories == [f"{PUBLIC.registry}/karrot", f"{PUBLIC.registry}/karrot-pipeline"]
    workflow = (ROOT / ".github" / "workflows" / "release.yaml").read_text()
    assert set(re.findall(r"name: (karrot[\w-]*)$", workflow, re.MULTILINE)) == {"karrot", "karrot-pipeline"}


def test_home_icon_sources_and_maintainers_are_complete(name: str) -> None:
    about = metadata(name)
    assert about["home"].rstrip("/") == PUBLIC.documentation
    assert about["icon"] == f"{PUBLIC.documentation}/assets/icon.svg"
    assert about["sources"][0] == PUBLIC.repository
    assert [set(each) for each in about["maintainers"]] == [{"name", "url"}]
    assert about["description"]
    assert about["keywords"]


def test_every_link_leads_to_a_page_or_a_file_of_this_project_or_to_burrows(name: str) -> None:
    pages = {page.address for page in site_map(ROOT).pages}
    links = annotation(name, "links")
    assert "support" in {each["name"] for each in links}
    for each in links:
        url = each["url"]
        if url.startswith(f"{PUBLIC.documentation}/"):
            assert url.removeprefix(f"{PUBLIC.documentation}/") in pages, url
        elif file := re.fullmatch(rf"{re.escape(PUBLIC.repository)}/blob/main/(.*)", url):
            assert (ROOT / file[1]).is_file(), url
        else:
            assert url.startswith((f"{PUBLIC.repository}/", "https://github.com/linkedin/Burrow/")), url


def test_the_changes_licence_and_category_have_values_that_artifact_hub_knows(name: str) -> None:
    kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}
    changes = annotation(name, "changes")
    assert changes
    for each in changes:
        assert each["kind"] in kinds
        assert each["description"]
    assert annotation(name, "license") == "Apache-2.0"
    assert annotation(name, "category") == "monitoring-logging"


def test_karrots_chart_is_a_prerelease_as_long_as_karrot_is_one() -> None:
    assert annotation("karrot", "prerelease") is is_prerelease(metadata("karrot")["appVersion"])


def test_the_file_for_a_verified_publisher_has_a_number_as_artifact_hub_gives_it() -> None:
    about = read_values(CHARTS / "artifacthub-repo.yml")
    assert about.keys() == {"repositoryID"}
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", about["repositoryID"])


def test_the_icon_of_the_charts_is_a_file_of_the_site() -> None:
    assert urlsplit(metadata("karrot")["icon"]).path.endswith("/assets/icon.svg")
    assert "assets/icon.svg" in (ROOT / "tools" / "docs_site" / "__main__.py").read_text()
