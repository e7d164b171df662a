"""``karrot render``: alert rules and recording rules for Prometheus, and dashboards for Grafana."""

from functools import partial

import click

from karrot.cli.errors import valid
from karrot.installed_distribution import DOCS_URL


@click.command("alert-rules")
@click.option("--set", "changed", metavar="NAME=VALUE", multiple=True, help="A threshold; docs/alerts.md lists them.")
@click.option(
    "--external-url",
    metavar="URL",
    envvar="KARROT_EXTERNAL_URL",
    show_envvar=True,
    help="Karrot's address for people: each alert then links to its page there.",
)
@click.option(
    "--runbook-url",
    metavar="URL",
    help="Where the runbooks are.  [default: /runbooks at --external-url, where Karrot serves them; else on GitHub]",
)
def alert_rules(changed: tuple[str, ...], external_url: str | None, runbook_url: str | None) -> None:
    """Print alerts for Prometheus: on consumer groups, on Burrow and on Karrot itself."""
    from karrot.render.prometheus_rules import RuleValues, alert_rules

    pairs = dict(text.partition("=")[::2] for text in changed)
    asked = partial(RuleValues, changed=pairs, external_url=external_url, runbook_url=runbook_url, docs_url=DOCS_URL)
    rules = valid(asked)
    click.echo(alert_rules(rules), nl=False)


@click.command("recording-rules")
def recording_rules() -> None:
    """Print recording rules for Prometheus: one series per group, growth, share of time in OK, totals."""
    from karrot.render.prometheus_rules import recording_rules

    click.echo(recording_rules(), nl=False)


@click.command("bridging-rules")
@click.argument(
    "tool", type=click.Choice(["burrow", "burrow-exporter", "kafka-exporter", "kafka-lag-exporter", "klag", "kminion"])
)
@click.option("--as-karrot", is_flag=True, help="The other way round: the tool's series under Karrot's names.")
def bridging_rules(tool: str, *, as_karrot: bool) -> None:
    """Print recording rules that make Karrot's series under another tool's names.

    What was built on that tool, dashboards and alerts, goes on with Karrot. docs/migrating.md says what is bridged.
    """
    from karrot.render.prometheus_rules import bridging_rules

    click.echo(bridging_rules(tool, as_karrot=as_karrot), nl=False)


@click.command("dashboard")
@click.argument("board", type=click.Choice(["overview", "group", "itself"]))
@click.option(
    "--external-url",
    metavar="URL",
    envvar="KARROT_EXTERNAL_URL",
    show_envvar=True,
    help="Karrot's address for people: the board then links to its page there.",
)
def dashboard(board: str, external_url: str | None) -> None:
    """Print a Grafana dashboard: of all groups, of one group, or of Karrot itself."""
    from karrot.render.dashboards import grafana_dashboard

    click.echo(valid(partial(grafana_dashboard, board, external_url)), nl=False)
