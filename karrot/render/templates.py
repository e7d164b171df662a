"""Finds the templates, and makes the Jinja environment that fills them in."""

from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from karrot.render import literals


def templates_dir() -> Path:
    """Where the templates are: in the package once installed, next to it in a checkout and an editable install."""
    return _shipped("templates", "templates")


def runbooks_dir() -> Path:
    """Where the runbooks are: in the package once installed, in docs/ in a checkout and an editable install."""
    return _shipped("runbooks", "docs/runbooks")


def _shipped(in_package: str, in_checkout: str) -> Path:
    installed = Path(str(files("karrot"))) / in_package
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / in_checkout


def environment() -> Environment:
    """Jinja as every rendered file needs it: a name that is missing is an error, and each format has its filter."""
    made = Environment(
        loader=FileSystemLoader(templates_dir()),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 (these are configuration files, and each value passes its format's own filter)
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(toml=literals.toml, yaml=literals.yaml, hcl=literals.hcl, json=literals.yaml)
    return made
