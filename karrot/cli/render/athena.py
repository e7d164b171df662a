"""``karrot render athena``: prints the DDL of the pipeline's tables."""

from functools import partial
from typing import Any

import click

from karrot.cli.errors import valid


@click.command(short_help="Print the DDL of the pipeline's tables for Amazon Athena.")
@click.option(
    "--tables",
    "location",
    metavar="s3://BUCKET/PREFIX",
    required=True,
    help="Address of the pipeline's tables.",
)
@click.option("--database", default="karrot", show_default=True, help="Database for the tables.")
@click.option(
    "--days",
    type=int,
    default=400,
    show_default=True,
    help="Number of past days that a query reads if it has no condition on the day.",
)
def athena(**given: Any) -> None:
    """Print the DDL of the pipeline's tables for Amazon Athena, with partition projection by day."""
    from karrot.render.athena import Athena, athena

    click.echo(athena(valid(partial(Athena, **given))), nl=False)
