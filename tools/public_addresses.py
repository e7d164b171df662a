"""Finds addresses of the project that are not its public addresses. The script needs only the standard library.

The public addresses are in ``pyproject.toml``: the repository and the documentation in ``project.urls``, the registry
of the images and charts in ``tool.karrot.registry``.
"""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_OWN = re.compile(
    r"https?://(?:www\.)?(?:github\.com/[\w.-]+/karrot\b|[\w-]+\.github\.io/karrot\b)"
    r"|\b[\w.-]+\.\w+/[\w.-]+/(?:karrot-pipeline\b|charts/(?:karrot|burrow)\b)"
    r"|\b(?:ghcr|quay|docker)\.io/[\w.-]+/karrot\b",
    re.IGNORECASE,
)
_OF_2019 = re.compile(
    r"(?<![\w./-])lowess/karrot\b"  # the image on Docker Hub; its names have no capitals
    r"|(?i:\blowess\.github\.io/helm-charts\b|\bkarrot\.readthedocs\.io\b"
    r"|\b(?:cloud\.drone\.io|coveralls\.io|hub\.docker\.com)/[\w./-]*lowess\b"
    r"|\bgithub\.com/lowess/karrot/\w+/master\b)"
)
_NOT_OURS = ("tests/data/", "tests/test_public_addresses.py", "tests/test_release.py", "tools/public_addresses.py")
"""Files of other projects and of the first Karrot, and the files that have wrong addresses on purpose."""


class PublicAddresses(NamedTuple):
    """Where the project is published: two URLs without a slash at the end, and a registry's host with the owner."""

    repository: str
    documentation: str
    registry: str


def public_addresses(root: Path) -> PublicAddresses:
    """Return the addresses in ``pyproject.toml``."""
    written = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    urls = written["project"]["urls"]
    return PublicAddresses(
        urls["Repository"].rstrip("/"), urls["Documentation"].rstrip("/"), written["tool"]["karrot"]["registry"]
    )


def wrong_addresses(root: Path) -> Iterator[str]:
    """Yield a sentence for each file in git with an address of 2019, or with another address of the project."""
    public = public_addresses(root)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if not name.startswith(_NOT_OURS) and (root / name).is_file():
            text = (root / name).read_text(encoding="utf-8", errors="replace")
            yield from (f"{name}: {problem}" for problem in problems(text, public))


def problems(text: str, public: PublicAddresses) -> list[str]:
    """Return a sentence for each wrong address in a text."""
    of_2019 = sorted({each[0] for each in _OF_2019.finditer(text)})
    own = sorted({each[0] for each in _OWN.finditer(text)})
    right = (public.repository, public.documentation, f"{public.registry}/")
    return [
        *(f"{address} is an address of 2019: write one from pyproject.toml" for address in of_2019),
        *(f"{each} is not a public address of pyproject.toml" for each in own if not each.startswith(right)),
    ]
