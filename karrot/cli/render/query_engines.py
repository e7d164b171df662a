"""``karrot render athena`` and ``druid``: what these engines need to query the pipeline's tables and its topic."""

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
    from karrot.render.athena_and_druid import Athena, athena

    click.echo(athena(valid(partial(Athena, **given))), nl=False)


@click.command()
@click.option(
    "--bootstrap-servers", "bootstrap", metavar="HOST:PORT,...", required=True, help="Kafka, as Druid sees it."
)
@click.option("--group", metavar="NAME", required=True, help="The consumer group that is asked about.")
@click.option("--topic", default="consumer_offsets_json", show_default=True, help="The --json-topic of offsets.")
@click.option("--datasource", default="consumer_offsets", show_default=True, help="What Druid calls it.")
@click.option("--interval", default="2017-01-01/2100-01-01", show_default=True, help="The time that is asked about.")
@click.option(
    "--print",
    "part",
    type=click.Choice(["all", "ingestion", "query"]),
    default="all",
    show_default=True,
    help="Which of the two.",
)
def druid(part: str, **given: Any) -> None:
    """Print Druid's ingestion spec for the JSON topic of offsets, and a query: offsets by minute, newest first.

    Two JSON documents, one after the other; --print chooses one. karrot history timeseries --metric offset answers
    the same without a Druid.
    """
    from karrot.render.athena_and_druid import Druid, druid_ingestion, druid_query

    asked = valid(partial(Druid, **given))
    texts = {"ingestion": druid_ingestion, "query": druid_query}
    for name, text in texts.items():
        if part in (name, "all"):
            click.echo(text(asked), nl=False)
