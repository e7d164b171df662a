"""Checks whether the checkout may become a release, and prints its release notes.

``python -m tools.release check`` fails with all reasons against a release of the checkout: versions that do not agree,
a chart that changed since the last tag without a new version, and addresses that are not in pyproject.toml. With a tag
(``check v2.1.0``), the tag must agree with the version, and ``version=``, ``prerelease=``, ``tags=`` (of the images),
``folder=`` (of the site) and ``registry=`` are printed for the workflow. ``python -m tools.release notes`` prints the
changelog's section about the version in pyproject.toml. The script needs git and only the standard library.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tools.public_addresses import public_addresses, wrong_addresses

ROOT = Path(__file__).resolve().parents[1]
CHARTS = ("burrow", "karrot")
CHECKSUMS = "SHA256SUMS"
NOTES = "notes.md"
"""The text of the release, and not one of its files."""

_FINAL = re.compile(r"\d+\.\d+\.\d+")
_NUMBERS = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?")


def main(arguments: list[str]) -> int:
    """Run one of the two commands."""
    match arguments:
        case ["check", *tags] if len(tags) <= 1:
            if _git(ROOT, "rev-parse", "--is-shallow-repository") == "true":
                sys.exit("the checkout has no history, so the charts cannot be compared: git fetch --unshallow --tags")
            if reasons := problems(ROOT, *tags):
                sys.exit("\n".join(reasons))
            if tags:
                print(f"version={version(ROOT)}")
                print(f"prerelease={str(is_prerelease(version(ROOT))).lower()}")
                print(f"tags={' '.join(image_tags(version(ROOT), _git(ROOT, 'tag', '--list', 'v*').split()))}")
                print(f"folder={minor(version(ROOT))}")
                print(f"registry={public_addresses(ROOT).registry}")
        case ["notes"]:
            print(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version(ROOT)))
        case _:
            sys.exit(__doc__)
    return 0


def version(root: Path) -> str:
    """Return the version in pyproject.toml, with which all other files must agree."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def is_prerelease(number: str) -> bool:
    """Return whether the version is an alpha, a beta or a candidate. Then no image gets the tag ``latest``."""
    return _FINAL.fullmatch(number) is None


def minor(number: str) -> str:
    """Return the version without its patch, such as ``2.1`` for ``2.1.0rc1``."""
    return ".".join(number.split(".")[:2])


def precedence(number: str) -> tuple[int, int, int, str, int]:
    """Return what versions are sorted by: a pre-release comes before its final version."""
    if not (found := _NUMBERS.fullmatch(number)):
        raise ValueError(f"{number} is not a version such as 2.1.0, 2.1.0a1, 2.1.0b1 or 2.1.0rc1")
    return int(found[1]), int(found[2]), int(found[3]), found[4] or "z", int(found[5] or 0)


def image_tags(number: str, tags: list[str]) -> list[str]:
    """Return the tags of the images. A repeated release does not take the tags of a newer final release in ``tags``."""
    if is_prerelease(number):
        return [number]
    finals = [each for tag in tags if not is_prerelease(each := tag.removeprefix("v"))]
    newest = max([number, *finals], key=precedence)
    newest_patch = max([number, *(each for each in finals if minor(each) == minor(number))], key=precedence)
    more = {minor(number): newest_patch, "latest": newest}
    return [number, *(tag for tag, owner in more.items() if owner == number)]


def problems(root: Path, tag: str = "") -> list[str]:
    """Return the reasons why the files in ``root`` are not a release with this tag, or with any, or an empty list."""
    number = version(root)
    found = []
    if tag and tag != f"v{number}":
        found.append(f"the tag is {tag}, but pyproject.toml says {number}: tag v{number}, or change the version")
    chart = (root / "helm" / "karrot" / "Chart.yaml").read_text(encoding="utf-8")
    if f"\nappVersion: {number}\n" not in chart:
        found.append(f"helm/karrot/Chart.yaml: appVersion is not {number}")
    if not notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), number):
        found.append(f"CHANGELOG.md: no section '## [{number}] - <date>'")
    return [*found, *changed_charts(root, tag), *wrong_addresses(root)]


def changed_charts(root: Path, tag: str) -> Iterator[str]:
    """Yield a sentence for each chart that differs from the newest other tag and has the version that it has there."""
    last = _git(root, "describe", "--tags", "--abbrev=0", "--match", "v*", *(("--exclude", tag) if tag else ()))
    if not last:
        return  # the first release
    for name in CHARTS:
        chart = root / "helm" / name
        # A chart has links to templates, and chart karrot has one to chart burrow.
        links = [link.resolve().relative_to(root.resolve()) for link in chart.rglob("*") if link.is_symlink()]
        changed = _git(root, "diff", "--name-only", last, "--", f"helm/{name}", *map(str, links)).splitlines()
        now, before = chart_version(chart), _version(_git(root, "show", f"{last}:helm/{name}/Chart.yaml"))
        if changed and now == before:
            yield (
                f"helm/{name}: the chart of {last} has the version {now} too, but {changed[0]} changed: set a new "
                f"version in helm/{name}/Chart.yaml"
            )


def chart_version(chart: Path) -> str:
    """Return the version of the chart itself."""
    return _version((chart / "Chart.yaml").read_text(encoding="utf-8"))


def _version(chart_yaml: str) -> str:
    found = re.search(r"^version: (\S+)$", chart_yaml, re.MULTILINE)
    return found[1] if found else ""


def _git(root: Path, *arguments: str) -> str:
    """Return what git prints, or nothing if it fails: there is no tag, or the tag has no such file."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout.strip()


def notes(changelog: str, number: str) -> str:
    """Return the section of the version. For a pre-release, return the unreleased changes. Empty without a section."""
    heading = rf"\[{re.escape(number)}\] - \d{{4}}-\d\d-\d\d"
    if is_prerelease(number):
        heading += r"|\[Unreleased\][^\n]*"
    section = re.search(rf"^## (?:{heading})\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return section[1].strip() if section else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
