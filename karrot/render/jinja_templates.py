"""Finds the shipped templates and renders them with Jinja.

Templates write every value through `toml`, `yaml` or `hcl`. Each filter takes one value and returns the complete
literal with its quotes, so that no group name can inject syntax.
"""

import json
import re
from functools import cache
from importlib.resources import files
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, FunctionLoader, StrictUndefined

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_NOT_PRINTABLE_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_ESCAPED = re.compile(r"\\.")
# HCL has fewer escape letters than JSON.
_NOT_IN_HCL = {r"\b": r"\u0008", r"\f": r"\u000c"}
_ATTRIBUTE = re.compile(r"( *)([\w-]+) = (.*[^{\[])")


def templates_dir() -> Path:
    """The folder of the templates: in the installed package, or next to it in a checkout or editable install."""
    return _shipped("templates", "templates")


def runbooks_dir() -> Path:
    """The folder of the runbooks: in the installed package, or in docs/ in a checkout or editable install."""
    return _shipped("runbooks", "docs/runbooks")


def shipped_templates(*folders: str) -> FunctionLoader:
    """A loader that reads the templates of these folders, also from a zip file on Python's path.

    On a Spark cluster, the zip file of ``--py-files`` comes before the installed package.
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
    """The text of a template with its values. A missing value is an error, and each format has its filter."""
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
    jinja.filters.update(toml=toml, yaml=yaml, hcl=hcl, json=yaml)
    return jinja


def toml(text: str) -> str:
    """A TOML basic string. TOML has the same escapes as JSON, but unlike JSON it needs an escape for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def yaml(value: str | float) -> str:
    """A YAML double-quoted scalar, or a number. YAML has JSON's escapes, but needs them for more characters."""
    if not isinstance(value, str):
        return number(value)
    return _NOT_PRINTABLE_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def hcl(value: str | float) -> str:
    """A quoted string of Terraform's language, or a number. ``${`` and ``%{`` are escaped: they begin templates."""
    if not isinstance(value, str):
        return number(value)
    quoted = _ESCAPED.sub(lambda found: _NOT_IN_HCL.get(found[0], found[0]), yaml(value))
    return re.sub(r"[$%](?=\{)", lambda found: f"\\u{ord(found[0]):04x}", quoted)


def aligned(text: str) -> str:
    """Terraform's text with the equals signs of neighbouring attributes aligned, as ``terraform fmt`` does."""
    return "\n".join(chain.from_iterable(_columns(list(lines)) for _, lines in groupby(text.split("\n"), _margin)))


def _margin(line: str) -> str | None:
    """The spaces before an attribute that ends on its line. ``None`` for a line that ends a group of attributes."""
    found = _ATTRIBUTE.fullmatch(line)
    return found and found[1]


def _columns(lines: list[str]) -> list[str]:
    attributes = [found.groups() for line in lines if (found := _ATTRIBUTE.fullmatch(line))]
    width = max((len(name) for _, name, _ in attributes), default=0)
    return [f"{margin}{name.ljust(width)} = {value}" for margin, name, value in attributes] or lines


def number(value: float) -> str:
    """A number as text, valid in each format and in metric math."""
    return f"{value:.15g}"
