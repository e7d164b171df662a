"""Checks whether a tag may become a release, and prints its release notes.

``python tools/release.py check v2.1.0`` prints ``version=`` and ``prerelease=`` for the workflow, or fails with all
reasons against the release. ``python tools/release.py notes`` prints the changelog's section about the version in
pyproject.toml. The script needs only the standard library.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_FINAL = re.compile(r"\d+\.\d+\.\d+")


def main(arguments: list[str]) -> int:
    """Run one of the two commands."""
    match arguments:
        case ["check", tag]:
            if reasons := problems(ROOT, tag):
                sys.exit("\n".join(reasons))
            print(f"version={version(ROOT)}")
            print(f"prerelease={str(is_prerelease(version(ROOT))).lower()}")
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


def problems(root: Path, tag: str) -> list[str]:
    """Return the reasons why this tag is not a release of the files in ``root``, or an empty list."""
    number = version(root)
    found = []
    if tag != f"v{number}":
        found.append(f"the tag is {tag}, but pyproject.toml says {number}: tag v{number}, or change the version")
    chart = (root / "helm" / "karrot" / "Chart.yaml").read_text(encoding="utf-8")
    if f"\nappVersion: {number}\n" not in chart:
        found.append(f"helm/karrot/Chart.yaml: appVersion is not {number}")
    if not notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), number):
        found.append(f"CHANGELOG.md: no section '## [{number}] - <date>'")
    return found


def notes(changelog: str, number: str) -> str:
    """Return the section of the version. For a pre-release, return the unreleased changes. Empty without a section."""
    heading = rf"\[{re.escape(number)}\] - \d{{4}}-\d\d-\d\d"
    if is_prerelease(number):
        heading += r"|\[Unreleased\][^\n]*"
    section = re.search(rf"^## (?:{heading})\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return section[1].strip() if section else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
