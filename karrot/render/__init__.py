"""Renders configuration for Burrow, Prometheus, Grafana and AWS from ``templates/``.

This module renders configuration for Burrow. Each other program has its own module.
"""

from karrot.render.jinja_templates import rendered, runbooks_dir, shipped_templates, templates_dir
from karrot.settings import types

__all__ = ["burrow_config", "burrow_template", "runbooks_dir", "shipped_templates", "templates_dir", "webhook"]

_TEMPLATE_PATH = "/etc/burrow/karrot.tmpl"


def burrow_config(url: str, user: str | None = None, *, template_path: str = _TEMPLATE_PATH) -> str:
    """Return the ``[notifier.karrot]`` section of burrow.toml. Comments explain each line and the template file.

    ``url`` is Karrot's URL for Burrow, with or without ``/burrow``. Raises `ValueError` if ``url`` is not a plain URL,
    or if ``user`` is not valid in Basic authentication.
    """
    return rendered(
        "burrow/notifier.toml.j2",
        address=webhook(url),
        user=None if user is None else types.checked(types.user, "the user", user),
        event_template=burrow_template().strip(),
        template_path=template_path,
    )


def burrow_template() -> str:
    """Return the content of the file for Burrow's ``template-open`` and ``template-close``."""
    return (templates_dir() / "burrow" / "karrot.tmpl").read_text(encoding="utf-8")


def webhook(url: str) -> str:
    """Return the URL that Burrow posts to. Raises `ValueError` if ``url`` is not a plain URL."""
    address = types.checked(types.url, "the address", url)
    return address if address.endswith("/burrow") else f"{address}/burrow"
