"""The workflows are valid and safe, and pin their actions."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.published_schemas import assert_matches_schema

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def test_the_workflows_match_githubs_schema() -> None:
    assert len(FILES) == 2
    assert_matches_schema("github-workflows", *FILES)


def test_zizmor_finds_nothing_unsafe() -> None:
    zizmor = Path(sys.executable).with_name("zizmor")
    done = subprocess.run([zizmor, "--offline", "--quiet", *FILES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_finds_nothing_wrong() -> None:
    if (actionlint := shutil.which("actionlint")) is None:
        pytest.skip("needs actionlint: go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12")
    done = subprocess.run([actionlint, *FILES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_action_is_pinned_by_its_commit_and_names_its_version() -> None:
    used = [line for path in FILES for line in re.findall(r"uses: (?!\./)(.*)", path.read_text())]
    assert len(used) > 5
    assert [line for line in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
    assert len({line.split("@")[0] for line in used}) == len(set(used)), "each action must have one version"


def test_every_job_declares_its_permissions() -> None:
    for path in FILES:
        workflow: dict[str, Any] = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {}
        for name, job in workflow["jobs"].items():
            assert "permissions" in job, name


def test_a_release_has_all_checks_of_a_merge() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())["jobs"]
    assert release["ci"]["uses"] == "./.github/workflows/ci.yaml"
    for publishing in ("images", "charts"):
        assert {"ci", "files"} <= set(release[publishing]["needs"])
    assert {"images", "charts"} <= set(release["release"]["needs"])
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())["jobs"]
    assert any(".ci/run" in step.get("run", "") for step in ci["everything"]["steps"])
