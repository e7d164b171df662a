"""Finds the shipped templates and renders them with Jinja.

Templates pass every value through the filter `toml` or `yaml`. A filter returns the complete literal of a value with
its quotes, so that no group name can inject syntax.
"""

import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, FunctionLoader, StrictUndefined

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_NOT_PRINTABLE_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def templates_dir() -> Path:
    """Return the folder of the templates: in the installed package, or next to it in a checkout or editable install."""
    return _shipped("templates", "templates")


def runbooks_dir() -> Path:
    """Return the folder of the runbooks: in the installed package, or in docs/ in a checkout or editable install."""
    return _shipped("runbooks", "docs/runbooks")


def shipped_templates(*folders: str) -> FunctionLoader:
    """Return a loader that reads the templates of the given folders, also from a zip file on Python's path.

    On a Spark cluster, Python's path has the zip file of ``--py-files`` before the installed package.
    """
    packed = files("karrot") / "templates"
    templates: Traversable = packed if packed.is_dir() else templates_dir()

    def load(name: str) -> str | None:
        found = (templates / folder / name for folder in folders)
        return next((file.read_text(encoding="utf-8") for file in found if file.is_file()), None)

    return FunctionLoader(load)


def _shipped(in_package: str, in_checkout: str) -> Path:
    installed = Path(str(files("karrot"))) / in_package
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / in_checkout


def rendered(template: str, **given: Any) -> str:
    """Render a template with the given values. A missing value is an error."""
    return _environment().get_template(template).render(given)


@cache
def _environment() -> Environment:
    jinja = Environment(
        loader=FileSystemLoader(templates_dir()),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 (these are configuration files, and each value passes its format's own filter)
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters.update(toml=toml, yaml=yaml, json=yaml)
    return jinja


def toml(text: str) -> str:
    """Return a TOML basic string. TOML has the same escapes as JSON, but also requires an escape for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def yaml(value: str | float) -> str:
    """Return a YAML double-quoted scalar or number. YAML has JSON's escapes, but requires more characters escaped."""
    if not isinstance(value, str):
        return number(value)
    return _NOT_PRINTABLE_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def number(value: float) -> str:
    """Return a number as a string that is valid in each format and in metric math."""
    return f"{value:.15g}"
