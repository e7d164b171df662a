"""All files have one version, and the distributions have the right files."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

import karrot
from tools import release

ROOT = Path(__file__).resolve().parents[1]
CHART = "helm/karrot/Chart.yaml"
PROJECT = """[project]
version = "{}"
[project.urls]
Repository = "https://github.com/somebody/karrot"
Documentation = "https://somebody.github.io/karrot/"
[tool.karrot]
registry = "ghcr.io/somebody"
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Write the files that a release is checked by, as in version 2.1.0, into a repository whose last tag is v2.0.0."""
    (tmp_path / "helm" / "burrow").mkdir(parents=True)
    (tmp_path / "helm" / "karrot" / "charts").mkdir(parents=True)
    (tmp_path / "helm" / "karrot" / "charts" / "burrow").symlink_to("../../burrow")
    (tmp_path / "helm" / "burrow" / "Chart.yaml").write_text("version: 0.1.0\n")
    (tmp_path / CHART).write_text("version: 0.1.0\nappVersion: 2.0.0\nkeywords: []\n")
    (tmp_path / "pyproject.toml").write_text(PROJECT.format("2.0.0"))
    _git(tmp_path, "init", "-q")
    _commit(tmp_path, tag="v2.0.0")
    (tmp_path / "pyproject.toml").write_text(PROJECT.format("2.1.0"))
    (tmp_path / CHART).write_text("version: 0.2.0\nappVersion: 2.1.0\nkeywords: []\n")
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]: 2.2.0\n\n- Soon.\n\n"
        "## [2.1.0] - 2027-01-02\n\n- New.\n\n## [2.0.0] - 2026-12-01\n\n- Old.\n"
    )
    _commit(tmp_path, tag="v2.1.0")
    return tmp_path


def _git(tree: Path, *arguments: str) -> None:
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=tree, check=True)


def _commit(tree: Path, tag: str) -> None:
    _git(tree, "add", "--all")
    _git(tree, "commit", "-q", "-m", tag)
    _git(tree, "tag", tag)


def test_all_files_have_one_version() -> None:
    number = release.version(ROOT)
    assert number == karrot.__version__ == yaml.safe_load((ROOT / CHART).read_text())["appVersion"]
    base = re.match(r"\d+\.\d+\.\d+", number)
    assert base is not None
    heading = re.search(r"^## .*$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    assert base[0] in heading[0]


def test_the_current_version_could_be_tagged() -> None:
    assert list(release.changed_charts(ROOT, "")) == []
    assert release.problems(ROOT, f"v{karrot.__version__}") == []


def test_a_tag_that_agrees_with_all_files_is_a_release(tree: Path) -> None:
    assert release.problems(tree, "v2.1.0") == []
    assert release.notes((tree / "CHANGELOG.md").read_text(), "2.1.0") == "- New."


def test_all_disagreements_are_reported_at_once(tree: Path) -> None:
    (tree / "pyproject.toml").write_text(PROJECT.format("2.2.0"))
    assert release.problems(tree, "v2.1.0") == [
        "the tag is v2.1.0, but pyproject.toml says 2.2.0: tag v2.2.0, or change the version",
        "helm/karrot/Chart.yaml: appVersion is not 2.2.0",
        "CHANGELOG.md: no section '## [2.2.0] - <date>'",
    ]


def test_a_chart_that_changed_since_the_last_tag_needs_a_new_version(tree: Path) -> None:
    (tree / "helm" / "burrow" / "values.yaml").write_text("replicaCount: 1\n")
    _git(tree, "add", "--all")
    sentence = (
        "helm/burrow: the chart of v2.0.0 has the version 0.1.0 too, but helm/burrow/values.yaml changed: set a new "
        "version in helm/burrow/Chart.yaml"
    )
    assert release.problems(tree, "v2.1.0") == [sentence]
    (tree / "helm" / "burrow" / "Chart.yaml").write_text("version: 0.1.1\n")
    assert release.problems(tree, "v2.1.0") == []


def test_a_chart_that_changes_after_the_release_needs_a_new_version(tree: Path) -> None:
    assert release.problems(tree) == []
    (tree / CHART).write_text("version: 0.2.0\nappVersion: 2.1.0\nkeywords: [lag]\n")
    [reason] = release.problems(tree)
    assert reason.startswith("helm/karrot: the chart of v2.1.0 has the version 0.2.0 too, but helm/karrot/Chart.yaml ")


def test_a_chart_changes_with_the_files_that_it_links_to(tree: Path) -> None:
    (tree / CHART).write_text("version: 0.1.0\nappVersion: 2.1.0\nkeywords: []\n")
    (tree / "helm" / "burrow" / "Chart.yaml").write_text("version: 0.1.1\n")
    [reason] = release.problems(tree, "v2.1.0")
    assert reason.startswith("helm/karrot: the chart of v2.0.0 has the version 0.1.0 too, but helm/burrow/Chart.yaml ")


def test_addresses_of_2019_and_of_others_are_no_release(tree: Path) -> None:
    (tree / "README.md").write_text("docker run lowess/karrot, or ghcr.io/nobody/karrot\n")
    _git(tree, "add", "--all")
    assert release.problems(tree, "v2.1.0") == [
        "README.md: lowess/karrot is an address of 2019: write one from pyproject.toml",
        "README.md: ghcr.io/nobody/karrot is not a public address of pyproject.toml",
    ]


@pytest.mark.parametrize(("number", "expected"), [("2.1.0", False), ("2.1.0a1", True), ("2.1.0rc2", True)])
def test_only_a_version_of_three_numbers_is_final(number: str, *, expected: bool) -> None:
    assert release.is_prerelease(number) is expected


@pytest.mark.parametrize(
    ("number", "tags", "expected"),
    [
        ("2.1.0", ["v2.0.0", "v2.1.0"], ["2.1.0", "2.1", "latest"]),
        ("2.1.0", ["v2.1.0", "v2.2.0rc1", "not-a-version"], ["2.1.0", "2.1", "latest"]),
        ("2.1.0rc1", ["v2.1.0rc1"], ["2.1.0rc1"]),
        ("2.0.1", ["v2.0.1", "v2.0.10", "v2.1.0"], ["2.0.1"]),
        ("2.0.10", ["v2.0.9", "v2.0.10", "v2.1.0"], ["2.0.10", "2.0"]),
    ],
)
def test_a_repeated_release_does_not_take_the_tags_of_a_newer_one(
    number: str, tags: list[str], expected: list[str]
) -> None:
    assert release.image_tags(number, tags) == expected


def test_versions_are_sorted_by_their_numbers() -> None:
    ordered = ["2.0.9", "2.0.10a2", "2.0.10b1", "2.0.10rc1", "2.0.10", "2.1.0"]
    assert sorted({*ordered}, key=release.precedence) == ordered


def test_the_notes_of_a_prerelease_are_the_unreleased_changes(tree: Path) -> None:
    assert release.notes((tree / "CHANGELOG.md").read_text(), "2.2.0b1") == "- Soon."


def test_the_sdist_builds_the_same_wheel_as_the_tree(tmp_path: Path) -> None:
    _build(ROOT, tmp_path / "tree", "-t", "sdist", "-t", "wheel")
    [sdist] = (tmp_path / "tree").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.2 does not have it
        archive.extractall(tmp_path, **safely)
    _build(tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path / "sdist", "-t", "wheel")
    [ours], [theirs] = ((tmp_path / place).glob("*.whl") for place in ("tree", "sdist"))
    assert _files(ours) == _files(theirs)
    names = _files(ours).keys()
    shipped = {path.relative_to(ROOT) for path in (ROOT / "templates").rglob("*") if path.is_file()}
    assert {f"karrot/{path}" for path in shipped} <= names
    runbooks = {f"karrot/runbooks/{path.name}" for path in (ROOT / "docs" / "runbooks").iterdir()}
    assert {name for name in names if name.startswith("karrot/runbooks/")} == runbooks != set()
    assert "karrot/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_extras_of_the_images_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    makefile = (ROOT / "Makefile").read_text()
    for line in re.findall(r"^\t\$\(COMPILE\).*-o requirements/(?:image|pipeline)\.txt$", makefile, re.MULTILINE):
        assert set(re.findall(r"--extra (\S+)", line)) <= extras.keys()


def test_the_audit_covers_every_pinned_package() -> None:
    pins = {
        path.name: set(re.findall(r"^[\w.-]+==[\w.+!]+", path.read_text(), re.MULTILINE))
        for path in (ROOT / "requirements").glob("*.txt")
    }
    listed = re.search(
        r"^AUDITED := \$\(addprefix requirements/,(.*)\)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert listed is not None
    audited = set().union(*(pins[name] for name in listed[1].split()))
    assert {name: found for name, each in pins.items() if (found := each - audited)} == {}


def _build(source: Path, into: Path, *targets: str) -> None:
    command = shutil.which("hatchling", path=str(Path(sys.executable).parent))
    assert command is not None
    subprocess.run([command, "build", "-d", into, *targets], cwd=source, check=True, capture_output=True)


def _files(wheel: Path) -> dict[str, int]:
    with ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist()}
