"""``karrot render bridging-rules``: prints recording rules that give Karrot's series another tool's names."""

import click


@click.command("bridging-rules")
@click.argument(
    "tool",
    type=click.Choice(["burrow", "burrow-exporter", "kafka-exporter", "kafka-lag-exporter", "klag", "kminion"]),
)
@click.option("--as-karrot", is_flag=True, help="The other way round: the tool's series under Karrot's names.")
def bridging_rules(tool: str, *, as_karrot: bool) -> None:
    """Print recording rules that make Karrot's series under another tool's names.

    What was built on that tool, dashboards and alerts, goes on with Karrot. docs/migrating.md says what is bridged.
    """
    from karrot.render.prometheus_rules import bridging_rules

    click.echo(bridging_rules(tool, as_karrot=as_karrot), nl=False)
