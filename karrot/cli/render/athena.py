"""``karrot render athena``: prints the DDL of the pipeline's tables for Amazon Athena."""

from functools import partial
from typing import Any

import click

from karrot.cli.errors import valid


@click.command()
@click.option("--location", metavar="s3://BUCKET/PREFIX", required=True, help="Where the pipeline has its tables.")
@click.option("--database", default="karrot", show_default=True, help="The database to create them in.")
@click.option("--days", type=int, default=400, show_default=True, help="How far back a query looks that names no day.")
def athena(**given: Any) -> None:
    """Print the DDL of the pipeline's tables for Amazon Athena, with their days projected."""
    from karrot.render.athena import Athena, athena

    click.echo(athena(valid(partial(Athena, **given))), nl=False)
