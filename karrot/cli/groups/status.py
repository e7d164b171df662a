"""``karrot status``: prints the verdict on each group, and the partitions that caused it."""

from typing import Any

import click

from karrot.cli.errors import Refused
from karrot.cli.groups.commands import group_options, run
from karrot.cli.groups.group_tables import partition_tables


@click.command()
@group_options
def status(**asked: Any) -> None:
    """Print Burrow's verdicts and the partitions behind them.

    Exit codes as those of `karrot groups`; a bad verdict is not a failure.
    """
    if asked["url"] is None and asked["bootstrap"] is not None:
        raise Refused("a verdict takes a history: --burrow names who has one, and karrot watch gathers one")
    run(partition_tables, with_all_partitions=False, **asked)
