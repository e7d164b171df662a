"""``karrot groups``: prints a line for each consumer group."""

from typing import Any

import click

from karrot.cli.groups.commands import group_options, run
from karrot.cli.groups.group_tables import groups_table


@click.command()
@group_options
def groups(**asked: Any) -> None:
    """List the groups that Burrow knows, with lag and skew.

    A line each: status, lag, and the share of the worst partition. With --bootstrap-servers also what Kafka says of
    each: state, members, coordinator, messages deleted unread, and the margin until that happens; with --watch also
    the rebalances since the first look.

    Exit code 1 if Burrow or Kafka does not answer or does not know what was named, 2 if it is unclear what is asked.
    """
    run(groups_table, with_all_partitions=False, **asked)
