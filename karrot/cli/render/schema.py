"""``karrot render schema``: prints the JSON Schema of Karrot's events in the archive and on a Kafka topic."""

import click


@click.command(short_help="Print the JSON Schema of an event in the archive or on Kafka.")
@click.option(
    "--of",
    type=click.Choice(["archive-line", "kafka-key", "kafka-value"]),
    default="archive-line",
    show_default=True,
    help="The line of the archive, or the key or value of a record of the kafka reporter.",
)
def schema(of: str) -> None:
    """Print the JSON Schema (2020-12) of an event.

    The archive reporter writes each event as a line of JSON. The kafka reporter writes the same line as the value of a
    record.
    """
    from karrot.render.event_json_schema import event_json_schema

    click.echo(event_json_schema(of), nl=False)
