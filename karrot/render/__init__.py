"""Renders configuration for Burrow, Prometheus, Grafana and AWS from ``templates/``.

Here is the rendering for Burrow. Each other program has a module.
"""

from karrot.render.jinja_templates import rendered, runbooks_dir, shipped_templates, templates_dir
from karrot.settings import types

__all__ = ["burrow_config", "burrow_template", "runbooks_dir", "shipped_templates", "templates_dir", "webhook"]

_TEMPLATE_PATH = "/etc/burrow/karrot.tmpl"


def burrow_config(url: str, user: str | None = None, *, template_path: str = _TEMPLATE_PATH) -> str:
    """The ``[notifier.karrot]`` section of burrow.toml with a comment per line, and how to write its template file.

    ``url`` is Karrot's URL for Burrow, with or without ``/burrow``. Raises `ValueError` with a sentence if ``url`` is
    not a plain URL, or if ``user`` cannot be a user name of Basic authentication.
    """
    return rendered(
        "burrow/notifier.toml.j2",
        address=webhook(url),
        user=None if user is None else types.checked(types.user, "the user", user),
        event_template=burrow_template().strip(),
        template_path=template_path,
    )


def burrow_template() -> str:
    """The content of the file for Burrow's ``template-open`` and ``template-close``."""
    return (templates_dir() / "burrow" / "karrot.tmpl").read_text(encoding="utf-8")


def webhook(url: str) -> str:
    """The URL that Burrow posts to. Raises `ValueError` with a sentence if ``url`` is not a plain URL."""
    address = types.checked(types.url, "the address", url)
    return address if address.endswith("/burrow") else f"{address}/burrow"
