"""Publishes what ``make dist`` built, so that a release that stopped half-way can be repeated.

Each command publishes only what is missing. It fails with a sentence if a registry or the release has other content
under the same name. The release workflow runs them; they need ``helm``, ``cosign``, ``docker`` or ``gh``, logged in.

- ``python -m tools.publish charts REGISTRY`` pushes and signs the charts.
- ``python -m tools.publish image REPOSITORY VERSION REVISION`` prints ``digest=`` of the published image of a commit,
  and an empty digest if nothing is published.
- ``python -m tools.publish release TAG [--prerelease] [--latest]`` makes the GitHub release with all files. The release
  is a draft until it is complete.
"""

import hashlib
import json
import re
import subprocess
import tempfile
from pathlib import Path

import click

from tools.release import CHECKSUMS, NOTES

DIST = Path(__file__).resolve().parents[1] / "dist"
_MISSING = re.compile(r"not found|manifest unknown|name unknown", re.IGNORECASE)
_CHART = re.compile(r"(?P<name>[a-z]+)-(?P<version>\d.*)\.tgz")


@click.group(help=__doc__)
def main() -> None:
    """Run one of the commands."""


@main.command()
@click.argument("registry")
@click.option("--dist", type=click.Path(path_type=Path, exists=True), default=DIST)
def charts(registry: str, dist: Path) -> None:
    """Push each chart that is not in the registry, and sign all of them by their digests."""
    _check_sums(dist)
    for chart in sorted(dist.glob("*.tgz")):
        found = _CHART.fullmatch(chart.name)
        if found is None:
            raise click.ClickException(f"{chart.name} is not the name of a packaged chart")
        place = f"{registry}/charts/{found['name']}"
        with tempfile.TemporaryDirectory() as directory:
            pull = ("helm", "pull", f"oci://{place}", "--version", found["version"], "--destination", directory)
            done = _run_unless_missing(*pull)
            if done is not None and (Path(directory) / chart.name).read_bytes() != chart.read_bytes():
                raise click.ClickException(
                    f"{place}:{found['version']} has other content: give the chart a new version"
                )
        done = done or _run("helm", "push", str(chart), f"oci://{registry}/charts")
        digest = re.search(r"sha256:[0-9a-f]{64}", done.stdout + done.stderr)
        if digest is None:
            raise click.ClickException(f"helm names no digest of {place}: {done.stdout}{done.stderr}")
        _run("cosign", "sign", "--yes", f"{place}@{digest[0]}")
        click.echo(f"{place}:{found['version']} is published and signed: {digest[0]}")


@main.command()
@click.argument("repository")
@click.argument("version")
@click.argument("revision")
def image(repository: str, version: str, revision: str) -> None:
    """Print the digest of the image of this version, which must be of this commit."""
    inspect = ("docker", "buildx", "imagetools", "inspect", f"{repository}:{version}", "--format", "{{json .}}")
    if (done := _run_unless_missing(*inspect)) is None:
        click.echo("digest=")
        return
    about = json.loads(done.stdout)
    # A bill of materials or a provenance is a manifest too, for the platform unknown/unknown.
    images = [each for platform, each in about["image"].items() if not platform.startswith("unknown/")]
    revisions = {each["config"].get("Labels", {}).get("org.opencontainers.image.revision") for each in images}
    if revisions != {revision}:
        others = ", ".join(sorted(map(str, revisions)))
        raise click.ClickException(f"{repository}:{version} was built from {others}, not from {revision}")
    click.echo(f"digest={about['manifest']['digest']}")


@main.command()
@click.argument("tag")
@click.option("--prerelease", is_flag=True, help="Mark the release as a pre-release.")
@click.option("--latest", is_flag=True, help="Show the release as the latest one.")
@click.option("--dist", type=click.Path(path_type=Path, exists=True), default=DIST)
def release(tag: str, dist: Path, *, prerelease: bool, latest: bool) -> None:
    """Make the release, add the files that it does not have, and then show it."""
    _check_sums(dist)
    view = ("gh", "release", "view", tag, "--json", "assets,isDraft")
    if (done := _run_unless_missing(*view)) is None:
        kind = ("--draft", "--verify-tag", f"--prerelease={str(prerelease).lower()}")
        _run("gh", "release", "create", tag, *kind, "--title", tag, "--notes-file", str(dist / NOTES))
        done = _run(*view)
    about = json.loads(done.stdout)
    # An upload that was interrupted leaves an asset that is not "uploaded".
    there = {each["name"] for each in about["assets"] if each["state"] == "uploaded"}
    files = [each for each in sorted(dist.iterdir()) if each.name != NOTES]
    with tempfile.TemporaryDirectory() as directory:
        for file in (each for each in files if each.name in there):
            _run("gh", "release", "download", tag, "--pattern", file.name, "--dir", directory)
            if (Path(directory) / file.name).read_bytes() != file.read_bytes():
                raise click.ClickException(f"the release {tag} has another {file.name}: make a new version")
    for file in (each for each in files if each.name not in there):
        _run("gh", "release", "upload", tag, "--clobber", str(file))
    if about["isDraft"]:
        _run("gh", "release", "edit", tag, "--draft=false", f"--latest={str(latest).lower()}")
    click.echo(f"the release {tag} has {len(files)} files; {len(there & {each.name for each in files})} were there")


def _check_sums(dist: Path) -> None:
    """Refuse files that are not those of ``make dist``: one that changed on the way, or one too many."""
    listed = dict(line.split("  ")[::-1] for line in (dist / CHECKSUMS).read_text(encoding="utf-8").splitlines())
    files = [each for each in dist.iterdir() if each.name not in {CHECKSUMS, NOTES}]
    found = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files}
    if wrong := sorted(name for name in listed | found if listed.get(name) != found.get(name)):
        raise click.ClickException(f"{dist} is not what make dist built: see {', '.join(wrong)}")


def _run_unless_missing(*command: str) -> "subprocess.CompletedProcess[str] | None":
    """Run a command, and return None if what it asks for does not exist."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode and _MISSING.search(done.stderr) else _successful(done)


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return _successful(subprocess.run(command, capture_output=True, text=True, check=False))


def _successful(done: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    if done.returncode:
        raise click.ClickException(f"{' '.join(map(str, done.args))} failed: {done.stderr.strip()}")
    return done


if __name__ == "__main__":
    main()
