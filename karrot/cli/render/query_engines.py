"""``karrot render athena`` and ``druid``: print configuration to query the pipeline's tables and topic."""

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
    from karrot.render.athena_and_druid import Athena, athena

    click.echo(athena(valid(partial(Athena, **given))), nl=False)


@click.command(short_help="Print Druid's ingestion spec and a query for offsets.")
@click.option(
    "--bootstrap-servers",
    "bootstrap",
    metavar="HOST:PORT,...",
    required=True,
    help="Addresses at which Druid reaches the Kafka brokers.",
)
@click.option("--group", metavar="NAME", required=True, help="Consumer group of the query.")
@click.option(
    "--json-topic",
    "topic",
    default="consumer_offsets_json",
    show_default=True,
    help="The --json-topic of `karrot pipeline offsets`.",
)
@click.option("--datasource", default="consumer_offsets", show_default=True, help="Name of the datasource in Druid.")
@click.option("--interval", default="2017-01-01/2100-01-01", show_default=True, help="Range of time of the query.")
@click.option(
    "--print",
    "part",
    type=click.Choice(["all", "ingestion", "query"]),
    default="all",
    show_default=True,
    help="Print only one of the two documents.",
)
def druid(part: str, **given: Any) -> None:
    """Print Druid's ingestion spec for the JSON topic of offsets, and a query for offsets by minute, newest first.

    The output has two JSON documents. --print chooses one of them. `karrot history timeseries --metric offset`
    answers the query without Druid.
    """
    from karrot.render.athena_and_druid import Druid, druid_ingestion, druid_query

    asked = valid(partial(Druid, **given))
    texts = {"ingestion": druid_ingestion, "query": druid_query}
    for name, text in texts.items():
        if part in (name, "all"):
            click.echo(text(asked), nl=False)
