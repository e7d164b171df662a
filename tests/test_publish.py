"""A release that stopped half-way can be repeated: only what is missing is published, and nothing is replaced.

The fakes of ``helm``, ``cosign``, ``docker`` and ``gh`` keep what they are given in a directory, and their calls in a
file. Their messages are those of the real programs.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tools.publish import main
from tools.release import CHECKSUMS, NOTES

REGISTRY = "ghcr.io/lowess"
IMAGE = f"{REGISTRY}/karrot"
DIGEST = f"sha256:{'0' * 64}"

FAKE = """
import hashlib, json, os, pathlib, shutil, sys
program, given, there = os.path.basename(sys.argv[0]), sys.argv[1:], pathlib.Path(os.environ["THERE"])
with (there / "calls").open("a") as calls:
    print(program, *given, file=calls)

def digest(file):
    return "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()

def value(option):
    return given[given.index(option) + 1]

if os.environ.get("FAILS", "nothing fails") in " ".join([program, *given]):
    sys.exit("Error: 502 Bad Gateway")
match [program, *given]:
    case ["helm", "pull", place, *_]:
        chart = there / f"{place.rpartition('/')[2]}-{value('--version')}.tgz"
        if not chart.exists():
            sys.exit(f"Error: failed to perform \\"FetchReference\\" on source: {place}: not found")
        shutil.copy(chart, value("--destination"))
        print(f"Pulled: {place}\\nDigest: {digest(chart)}", file=sys.stderr)
    case ["helm", "push", chart, place]:
        shutil.copy(chart, there)
        print(f"Pushed: {place}\\nDigest: {digest(pathlib.Path(chart))}", file=sys.stderr)
    case ["cosign", "sign", "--yes", place]:
        pass
    case ["docker", "buildx", "imagetools", "inspect", place, "--format", _]:
        if not (there / "image.json").exists():
            sys.exit(f"ERROR: {place}: not found")
        print((there / "image.json").read_text())
    case ["gh", "release", action, tag, *options]:
        release = there / "release.json"
        about = json.loads(release.read_text()) if release.exists() else {"isDraft": True, "assets": []}
        if action == "view" and not release.exists():
            sys.exit("release not found")
        if action == "view":
            print(json.dumps(about))
        elif action == "upload":
            file = pathlib.Path(options[-1])
            shutil.copy(file, there)
            others = [each for each in about["assets"] if each["name"] != file.name]
            release.write_text(json.dumps(about | {"assets": [*others, {"name": file.name, "state": "uploaded"}]}))
        elif action == "download":
            shutil.copy(there / value("--pattern"), value("--dir"))
        else:
            release.write_text(json.dumps(about | {"isDraft": "--draft" in options}))
    case _:
        sys.exit("unexpected")
"""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the fakes first on the PATH, and return the directory with what they were given."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "there").mkdir()
    for program in ("helm", "cosign", "docker", "gh"):
        (tmp_path / "bin" / program).write_text(f"#!{sys.executable}\n{FAKE}")
        (tmp_path / "bin" / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("THERE", str(tmp_path / "there"))
    return tmp_path / "there"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    directory = tmp_path / "dist"
    directory.mkdir()
    for name in ("burrow-0.1.0.tgz", "karrot-0.2.0.tgz", "karrot_burrow-2.1.0-py3-none-any.whl", "notes.md"):
        (directory / name).write_text(name)
    write_sums(directory)
    return directory


def write_sums(dist: Path) -> None:
    files = [each for each in sorted(dist.iterdir()) if each.name not in {CHECKSUMS, NOTES}]
    sums = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    (dist / CHECKSUMS).write_text("".join(sums))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def calls(there: Path, program: str) -> list[str]:
    lines = (there / "calls").read_text().splitlines()
    (there / "calls").unlink()
    return [" ".join(line.split()[1:3]) for line in lines if line.startswith(f"{program} ")]


def test_charts_are_pushed_once_and_signed_by_their_digests(there: Path, dist: Path) -> None:
    done = run("charts", REGISTRY, "--dist", dist)
    assert done.exit_code == 0, done.output
    digest = hashlib.sha256(b"burrow-0.1.0.tgz").hexdigest()
    line = f"{REGISTRY}/charts/burrow:0.1.0 is published and signed: sha256:{digest}"
    assert done.output.splitlines()[0] == line
    signed = (there / "calls").read_text()
    assert f"cosign sign --yes {REGISTRY}/charts/burrow@sha256:{digest}\n" in signed
    assert len(calls(there, "helm")) == 4
    again = run("charts", REGISTRY, "--dist", dist)
    assert (again.exit_code, again.output) == (0, done.output)
    assert [each.split()[0] for each in calls(there, "helm")] == ["pull", "pull"]


def test_a_chart_with_other_content_under_its_version_is_not_replaced(there: Path, dist: Path) -> None:
    (there / "burrow-0.1.0.tgz").write_text("as it was")
    done = run("charts", REGISTRY, "--dist", dist)
    assert (done.exit_code, done.output) == (
        1,
        f"Error: {REGISTRY}/charts/burrow:0.1.0 has other content: give the chart a new version\n",
    )
    assert (there / "burrow-0.1.0.tgz").read_text() == "as it was"


def test_a_registry_that_fails_is_not_one_without_the_chart(
    there: Path, dist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "helm pull")
    done = run("charts", REGISTRY, "--dist", dist)
    assert done.exit_code == 1
    assert done.output.endswith(" failed: Error: 502 Bad Gateway\n")
    assert [each.split()[0] for each in calls(there, "helm")] == ["pull"]


def test_files_that_make_dist_did_not_build_are_refused(there: Path, dist: Path) -> None:
    (dist / "karrot_burrow-2.1.0-py3-none-any.whl").write_text("another")
    (dist / "karrot_burrow-2.0.0-py3-none-any.whl").write_text("too many")
    for command in (("charts", REGISTRY), ("release", "v2.1.0")):
        done = run(*command, "--dist", dist)
        wrong = "karrot_burrow-2.0.0-py3-none-any.whl, karrot_burrow-2.1.0-py3-none-any.whl"
        assert (done.exit_code, done.output) == (1, f"Error: {dist} is not what make dist built: see {wrong}\n")
    assert list(there.iterdir()) == []


@pytest.mark.usefixtures("there")
def test_an_image_that_is_not_published_has_no_digest() -> None:
    done = run("image", IMAGE, "2.1.0", "abc")
    assert (done.exit_code, done.output) == (0, "digest=\n")


@pytest.mark.parametrize(
    ("revision", "code", "said"),
    [
        ("abc", 0, f"digest={DIGEST}\n"),
        ("def", 1, f"Error: {IMAGE}:2.1.0 was built from abc, not from def\n"),
    ],
)
def test_a_published_image_must_be_of_this_commit(there: Path, revision: str, code: int, said: str) -> None:
    platform = {"config": {"Labels": {"org.opencontainers.image.revision": "abc"}}}
    images = {"linux/amd64": platform, "linux/arm64": platform, "unknown/unknown": {"config": {}}}
    about = {"manifest": {"digest": DIGEST}, "image": images}
    (there / "image.json").write_text(json.dumps(about))
    done = run("image", IMAGE, "2.1.0", revision)
    assert (done.exit_code, done.output) == (code, said)


def test_a_release_is_a_draft_until_it_has_all_files(there: Path, dist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "upload v2.1.0 --clobber " + str(dist / "karrot_burrow"))
    stopped = run("release", "v2.1.0", "--latest", "--dist", dist)
    assert stopped.exit_code == 1
    about = json.loads((there / "release.json").read_text())
    assert (about["isDraft"], len(about["assets"])) == (True, 3)
    about["assets"][0]["state"] = "starter"  # as an interrupted upload
    (there / "release.json").write_text(json.dumps(about))
    monkeypatch.delenv("FAILS")
    calls(there, "gh")
    repeated = run("release", "v2.1.0", "--latest", "--dist", dist)
    assert (repeated.exit_code, repeated.output) == (0, "the release v2.1.0 has 4 files; 2 were there\n")
    made = [each.split()[1] for each in calls(there, "gh")]
    assert made == ["view", "download", "download", "upload", "upload", "edit"]
    assert json.loads((there / "release.json").read_text())["isDraft"] is False
    complete = run("release", "v2.1.0", "--latest", "--dist", dist)
    assert (complete.exit_code, complete.output) == (0, "the release v2.1.0 has 4 files; 4 were there\n")
    assert {each.split()[1] for each in calls(there, "gh")} == {"view", "download"}


def test_a_file_of_the_release_is_not_replaced(there: Path, dist: Path) -> None:
    assert run("release", "v2.1.0", "--dist", dist).exit_code == 0
    (there / "karrot-0.2.0.tgz").write_text("as it was")
    done = run("release", "v2.1.0", "--dist", dist)
    sentence = "Error: the release v2.1.0 has another karrot-0.2.0.tgz: make a new version\n"
    assert (done.exit_code, done.output) == (1, sentence)


def test_a_file_that_is_no_packaged_chart_is_named(there: Path, dist: Path) -> None:
    (dist / "chart.tgz").touch()
    write_sums(dist)
    done = run("charts", REGISTRY, "--dist", dist)
    assert done.output.endswith("Error: chart.tgz is not the name of a packaged chart\n")
    assert isinstance(done.exception, SystemExit | click.ClickException)
    assert (there / "calls").exists()
