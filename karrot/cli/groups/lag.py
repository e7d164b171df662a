"""``karrot lag``: prints the lag of every partition."""

from typing import Any

import click

from karrot.cli.groups.commands import group_options, run
from karrot.cli.groups.group_tables import partition_tables


@click.command()
@group_options
def lag(**asked: Any) -> None:
    """Print the lag of every partition, as Burrow has it.

    With the sum, and the share of the worst partition. With --bootstrap-servers alone it is Kafka's answer.

    Exit codes as those of `karrot groups`.
    """
    run(partition_tables, with_all_partitions=True, **asked)
