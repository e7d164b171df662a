"""Finds another distribution that shares files with Karrot: on the package index, `karrot` is another project."""

import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

NAME: Final = "karrot-burrow"


def conflict(package: Path = Path(__file__).parent) -> str | None:
    """A sentence about a distribution `karrot` with files in ``package``. pip lets one overwrite files of the other."""
    for found in distributions(name="karrot"):
        directory = Path(str(found.locate_file(""))).resolve()
        owns_files = re.search(rf'^"?{package.name}/', found.read_text("RECORD") or "", re.MULTILINE)
        if owns_files and (directory / package.name).resolve() == package.resolve():
            return (
                f"'karrot' is installed too in {directory} and shares files with '{NAME}': run pip uninstall karrot "
                f"{NAME}, then pip install {NAME}"
            )
    return None
