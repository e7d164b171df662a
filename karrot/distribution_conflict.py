"""Finds another installed distribution that may have overwritten files of Karrot.

On the package index, `karrot` is another project. Before version 2.0, Karrot's own distribution had this name. Now it
is `karrot-burrow`. Both contain a package `karrot`, so pip lets one overwrite and remove files of the other.
"""

import re
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from pathlib import Path
from typing import Final, NamedTuple

NAME: Final = "karrot-burrow"

_FORMER: Final = "karrot"
_REPORTERS: Final = "karrot.reporters"
_PACKAGE: Final = Path(__file__).parent
"""The directory of this file, without following links: an installer may make each file a link into its cache."""


class Intruder(NamedTuple):
    """A distribution `karrot` that is installed in the same directory as Karrot."""

    version: str
    directory: Path
    is_ours: bool
    """True for an older Karrot, false for the other project. If true, all files are Karrot's, but of two versions."""

    def __str__(self) -> str:
        what = "an older Karrot" if self.is_ours else "another project"
        return (
            f"{what} is installed as '{_FORMER}' {self.version} in {self.directory} and shares files with '{NAME}': "
            f"run pip uninstall {_FORMER} {NAME}, then pip install {NAME}"
        )


def intruder(package: Path = _PACKAGE) -> Intruder | None:
    """Find a distribution that shares the directory ``package`` with Karrot. Return ``None`` if there is none."""
    found = [each for known in distributions(name=_FORMER) if (each := _sharing(known, package)) is not None]
    return min(found, key=lambda each: each.is_ours, default=None)


def _sharing(found: Distribution, package: Path) -> Intruder | None:
    directory = Path(str(found.locate_file(""))).resolve()
    if (directory / package.name).resolve() != package.resolve():
        return None  # an editable install, or another directory: it owns none of the files that run
    metadata = found.read_text("METADATA") or found.read_text("PKG-INFO")
    # Old versions of pip, which did not always build a wheel, wrote `installed-files.txt`, with paths relative to the
    # metadata.
    files = found.read_text("RECORD") or found.read_text("installed-files.txt") or ""
    if not metadata or not re.search(rf'^"?(\.\./)?{package.name}/', files, re.MULTILINE):
        return None  # an uninstallation or a build left it behind: it owns no file, and pip cannot uninstall it
    version = re.search(r"^Version: *(.+)$", metadata, re.MULTILINE)
    offers_reporters = any(point.group == _REPORTERS for point in found.entry_points)
    is_ours = offers_reporters or re.search(rf"\b{package.name}/reporters/", files) is not None
    return Intruder(version[1].strip() if version else "of no version", directory, is_ours)


def entry_point(group: str, name: str) -> EntryPoint:
    """Find the entry point of this name. Karrot's own entry point wins over that of an older Karrot.

    Raises `LookupError` if there is none, or more than one.
    """
    found = entry_points(group=group, name=name)
    points = {point.value: point for point in found if _owner(point) != _FORMER} or {each.value: each for each in found}
    if len(points) == 1:
        return next(iter(points.values()))
    if not points:
        raise LookupError(f"no installed package offers {name!r}")
    owners = ", ".join(sorted(f"{_owner(each)} ({value})" for value, each in points.items()))
    raise LookupError(f"several installed packages offer {name!r}: {owners}; uninstall all but one")


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "unknown"
