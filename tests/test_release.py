"""All files have one version, and the distributions have the right files."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

import karrot

ROOT = Path(__file__).resolve().parents[1]
CHART = "helm/karrot/Chart.yaml"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Write the files that a release is checked by, as in version 2.1.0."""
    (tmp_path / CHART).parent.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "2.1.0"\n')
    (tmp_path / CHART).write_text("name: karrot\nappVersion: 2.1.0\nkeywords: []\n")
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]: 2.2.0\n\n- Soon.\n\n"
        "## [2.1.0] - 2027-01-02\n\n- New.\n\n## [2.0.0] - 2026-12-01\n\n- Old.\n"
    )
    return tmp_path


def test_all_files_have_one_version(release: ModuleType) -> None:
    number = release.version(ROOT)
    assert number == karrot.__version__ == yaml.safe_load((ROOT / CHART).read_text())["appVersion"]
    base = re.match(r"\d+\.\d+\.\d+", number)
    assert base is not None
    heading = re.search(r"^## .*$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    assert base[0] in heading[0]


def test_the_current_version_could_be_tagged(release: ModuleType) -> None:
    assert release.problems(ROOT, f"v{karrot.__version__}") == []


def test_a_tag_that_agrees_with_all_files_is_a_release(release: ModuleType, tree: Path) -> None:
    assert release.problems(tree, "v2.1.0") == []
    assert release.notes((tree / "CHANGELOG.md").read_text(), "2.1.0") == "- New."


def test_all_disagreements_are_reported_at_once(release: ModuleType, tree: Path) -> None:
    (tree / "pyproject.toml").write_text('[project]\nversion = "2.2.0"\n')
    assert release.problems(tree, "v2.1.0") == [
        "the tag is v2.1.0, but pyproject.toml says 2.2.0: tag v2.2.0, or change the version",
        "helm/karrot/Chart.yaml: appVersion is not 2.2.0",
        "CHANGELOG.md: no section '## [2.2.0] - <date>'",
    ]


@pytest.mark.parametrize(("number", "expected"), [("2.1.0", False), ("2.1.0a1", True), ("2.1.0rc2", True)])
def test_only_a_version_of_three_numbers_is_final(release: ModuleType, number: str, *, expected: bool) -> None:
    assert release.is_prerelease(number) is expected


def test_the_notes_of_a_prerelease_are_the_unreleased_changes(release: ModuleType, tree: Path) -> None:
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


def _build(source: Path, into: Path, *targets: str) -> None:
    command = shutil.which("hatchling", path=str(Path(sys.executable).parent))
    assert command is not None
    subprocess.run([command, "build", "-d", into, *targets], cwd=source, check=True, capture_output=True)


def _files(wheel: Path) -> dict[str, int]:
    with ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist()}
