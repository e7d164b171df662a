"""Prints the lines of each package of karrot next to its budget in ``pyproject.toml``, and fails above 110 percent.

A package is a folder of ``karrot/``, and ``.`` has the modules at the top. Lines are counted as ``wc -l`` does. Lower
the budget of a package that became smaller, and raise one only in a change that says what it adds and what it deletes.
"""

import sys
import tomllib
from collections import Counter
from pathlib import Path

_LIMIT = 1.1


def budget(root: Path) -> dict[str, int]:
    """Return the lines that each package may have, by its path below ``karrot/``."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return dict(project["tool"]["karrot"]["budget"])


def measured(package: Path) -> Counter[str]:
    """Return the lines of Python of each folder at the top of a package, and of its own modules as ``.``."""
    lines: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        lines[path.relative_to(package).parts[0] if path.parent != package else "."] += path.read_bytes().count(b"\n")
    return lines


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    allowed, lines = budget(root), measured(root / "karrot")
    for name in sorted(lines, key=lambda each: -lines[each]):
        print(f"{name:12} {lines[name]:6} of {allowed.get(name, 0):6}")
    print(f"{'karrot':12} {lines.total():6} of {sum(allowed.values()):6}")
    over = [name for name in lines if lines[name] > _LIMIT * allowed.get(name, 0)]
    sys.exit(f"more than {_LIMIT:.0%} of the budget in pyproject.toml: {', '.join(sorted(over))}" if over else 0)
