"""The Dockerfile keeps its rules, as far as that shows without a build; ``make image`` builds it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
STAGES = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("place", ["Dockerfile", "examples/burrow/Dockerfile", "examples/spark-submit/Dockerfile"])
def test_hadolint_finds_nothing(place: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), ROOT / place], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_of_burrow_is_the_one_that_the_chart_starts() -> None:
    text = (ROOT / "examples" / "burrow" / "Dockerfile").read_text()
    chart = yaml.safe_load((ROOT / "helm" / "burrow" / "Chart.yaml").read_text())
    values = yaml.safe_load((ROOT / "helm" / "burrow" / "values.yaml").read_text())
    assert set(re.findall(r"\bv\d+\.\d+\.\d+\b", text)) == {chart["appVersion"]}
    assert re.findall(r'^ENTRYPOINT \["(.*)"\]$', text, re.MULTILINE) == values["image"]["command"]
    assert f"USER {values['podSecurityContext']['runAsUser']}:" in text
    readme = (ROOT / "examples" / "burrow" / "README.md").read_text()
    assert f"burrow:{chart['appVersion']}" in readme


def test_every_stage_uses_the_base_from_one_argument() -> None:
    bases = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) - STAGES.keys()
    assert bases == {"${PYTHON_IMAGE}"}
    assert re.search(r"^ARG PYTHON_IMAGE=\S+:\S+$", DOCKERFILE.split("FROM")[0], re.MULTILINE)


def test_the_service_is_the_default_target() -> None:
    assert DOCKERFILE.rstrip().splitlines()[-1] == "FROM service"


@pytest.mark.parametrize("requirements", ["uv", "build", "image", "pipeline", "spark-build"])
def test_every_requirement_is_pinned_by_hash(requirements: str) -> None:
    pinned = (ROOT / "requirements" / f"{requirements}.txt").read_text()
    packages = re.findall(r"^[\w.-]+==\S+.*\\\n    --hash=sha256:[0-9a-f]{64}", pinned, re.MULTILINE)
    assert len(packages) == len(re.findall(r"^[\w.-]+==", pinned, re.MULTILINE)) > 0
    assert f"{requirements}.txt" in STAGES["tools"] + STAGES["service-environment"] + STAGES["pipeline-environment"]


def test_no_package_is_installed_unpinned() -> None:
    for install in re.findall(r"(?:pip|uv pip) install\b.*?(?=&&|\n\n|\Z)", DOCKERFILE, re.DOTALL):
        assert "--require-hashes" in install or "--offline --no-deps" in install, install


def test_the_images_have_the_same_versions_as_the_tests() -> None:
    tested = _versions("all")
    for requirements in ("image", "pipeline"):
        assert _versions(requirements).items() <= tested.items(), requirements


def test_only_named_files_enter_the_build() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    for source in " ".join(copied).split():
        assert source in allowed or (source.startswith("requirements/") and source.endswith(".txt")), source


def _versions(requirements: str) -> dict[str, str]:
    pinned = (ROOT / "requirements" / f"{requirements}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==([\w.+!-]+)", pinned, re.MULTILINE))
