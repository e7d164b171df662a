"""The workflows are valid and safe, and pin their actions."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.published_schemas import assert_matches_schema

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def test_the_workflows_match_githubs_schema() -> None:
    assert [path.stem for path in FILES] == ["advisories", "ci", "deep", "release", "requirements"]
    assert_matches_schema("github-workflows", *FILES)


def test_dependabots_configuration_matches_its_schema_and_names_folders_with_files() -> None:
    configuration = ROOT / ".github" / "dependabot.yml"
    assert_matches_schema("dependabot", configuration)
    names = {"docker": "Dockerfile", "docker-compose": "compose.yaml", "github-actions": ".github"}
    for update in yaml.safe_load(configuration.read_text())["updates"]:
        for folder in update.get("directories", [update.get("directory")]):
            assert (ROOT / folder.strip("/") / names[update["package-ecosystem"]]).exists(), folder


def test_zizmor_finds_nothing_unsafe() -> None:
    zizmor = Path(sys.executable).with_name("zizmor")
    done = subprocess.run(
        [zizmor, "--offline", "--quiet", ROOT / ".github"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_finds_nothing_wrong() -> None:
    places = os.pathsep.join([str(ROOT / "build" / "bin"), os.environ["PATH"]])
    if (actionlint := shutil.which("actionlint", path=places)) is None:
        pytest.skip("needs actionlint: make lint installs it if there is Go")
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


def jobs(workflow: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{workflow}.yaml").read_text())["jobs"]
    return found


def script(job: dict[str, Any]) -> str:
    """Return all that the job runs: its commands, and the names of its actions."""
    return "\n".join(str(step.get("run") or step["uses"]) for step in job["steps"])


def test_a_release_has_all_checks_of_a_merge() -> None:
    release = jobs("release")
    for each in ("ci", "deep", "advisories"):
        assert release[each]["uses"] == f"./.github/workflows/{each}.yaml"
    assert ".ci/run" in script(jobs("ci")["everything"])
    assert "make deep" in script(jobs("deep")["suite"])
    assert "make audit" in script(jobs("advisories")["audit"])
    for publishing in ("images", "charts", "python-package"):
        assert {"ci", "deep", "advisories", "files", "rebuild"} <= set(release[publishing]["needs"])
    assert {"images", "charts", "python-package"} <= set(release["release"]["needs"])


def test_what_a_release_publishes_is_signed_or_has_provenance() -> None:
    release = jobs("release")
    for attested in ("files", "images"):
        assert "actions/attest-build-provenance@" in script(release[attested])
        assert release[attested]["permissions"]["attestations"] == "write"
    assert "cosign sign" in script(release["images"])
    assert "tools.publish charts" in script(release["charts"])  # it signs them
    assert release["python-package"]["environment"] == "pypi"
    assert release["python-package"]["permissions"] == {"id-token": "write"}
    for signing in ("files", "images", "charts", "python-package"):
        assert release[signing]["permissions"]["id-token"] == "write"


def test_the_images_have_both_platforms() -> None:
    assert "--platform linux/amd64,linux/arm64" in script(jobs("release")["images"])


def test_the_tests_run_on_every_python_of_the_classifiers() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = {found[1] for each in classifiers if (found := re.search(r":: (3\.\d+)$", each))}
    ci = jobs("ci")
    [setup] = [step for step in ci["everything"]["steps"] if "setup-python" in step.get("uses", "")]
    tested = {setup["with"]["python-version"], *ci["newer-pythons"]["strategy"]["matrix"]["python"]}
    assert tested == named


def test_every_deep_suite_runs_at_night_and_has_a_row_that_says_when_it_last_ran() -> None:
    suites = re.findall(r"^    \[(\w+)\]=\"(.+)\"$", (ROOT / ".ci" / "deep").read_text(), re.MULTILINE)
    [job] = jobs("deep").values()
    assert job["strategy"]["matrix"]["suite"] == [name for name, _ in suites]
    rows = re.findall(r"^\| (\w+) \| `(make [^`]+)` \| ", (ROOT / "docs" / "reliability.md").read_text(), re.MULTILINE)
    assert rows == suites
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| run these suites |")[2]
    wanted = re.findall(r"^\| .*\| ((?:\w+, )*\w+) \|$", table, re.MULTILINE)
    assert {suite for row in wanted for suite in row.split(", ")} == {name for name, _ in suites}


def test_a_check_of_the_charts_has_the_history() -> None:
    for workflow, job in (("ci", "everything"), ("release", "files")):
        steps = jobs(workflow)[job]["steps"]
        assert any("tools.release check" in step.get("run", "") for step in steps)
        [checkout] = [step for step in steps if "checkout" in step.get("uses", "")]
        assert checkout["with"]["fetch-depth"] == 0


def test_every_module_that_a_workflow_runs_exists() -> None:
    run = {name for path in FILES for name in re.findall(r"python -m (tools[\w.]*)", path.read_text())}
    assert run == {"tools.release", "tools.publish", "tools.docs_site.publish"}
    for name in run:
        assert (ROOT / name.replace(".", "/")).with_suffix(".py").exists()
    targets = {name for path in FILES for name in re.findall(r"\bmake ([\w./-]+)", path.read_text())}
    assert targets <= set(re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) | {
        ".venv/stamps/service"
    }
