"""The ``notify`` reporter: one message when an incident opens, gets worse and closes, through Apprise."""

from karrot.reporters.base import Context
from karrot.reporters.notify.reporter import NotifyReporter
from karrot.reporters.notify.routes import read_routes

__all__ = ["build"]


def build(context: Context) -> NotifyReporter:
    """Build the reporter. Raises `ValueError` for a wrong file of channels, or without Apprise."""
    path, external_url = context.options
    return NotifyReporter(*read_routes(path), external_url, context)
