"""``karrot log``: works on the event log while no Karrot runs."""

import click

from karrot.cli.log import copy

__all__ = ["log"]


@click.group(commands=[copy.copy])
def log() -> None:
    """Move the event log to another place."""
