"""Configuration for others, rendered from ``templates/``."""

import json
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from karrot import values

__all__ = ["burrow_config", "burrow_template", "templates_dir"]

_TEMPLATE_PATH = "/etc/burrow/karrot.tmpl"


def templates_dir() -> Path:
    """Where the templates are: in the package once installed, beside it in a checkout and an editable install."""
    installed = Path(str(files("karrot"))) / "templates"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[1] / "templates"


def burrow_config(url: str, user: str | None = None) -> str:
    """The ``[notifier.karrot]`` section of burrow.toml, a comment per line, and how to write its template file.

    ``url`` is Karrot's address as Burrow sees it, with or without ``/burrow``. Raises `ValueError` with a sentence if
    it is no plain address, or if ``user`` cannot be the user of Basic authentication.
    """
    return (
        _environment()
        .get_template("burrow/notifier.toml.j2")
        .render(
            address=webhook(url),
            user=None if user is None else values.checked(values.user, "the user", user),
            event_template=burrow_template().strip(),
            template_path=_TEMPLATE_PATH,
        )
    )


def burrow_template() -> str:
    """The file that Burrow's ``template-open`` and ``template-close`` name."""
    return (templates_dir() / "burrow" / "karrot.tmpl").read_text(encoding="utf-8")


def webhook(url: str) -> str:
    """The address Burrow posts to. Raises `ValueError` with a sentence if ``url`` is no plain address."""
    address = values.checked(values.url, "the address", url)
    return address if address.endswith("/burrow") else f"{address}/burrow"


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(templates_dir()),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 (these are configuration files, and each value passes its format's own filter)
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["toml"] = _toml
    return environment


def _toml(text: str) -> str:
    """A TOML basic string. JSON's escapes are TOML's too; only DEL is allowed raw in JSON alone."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
