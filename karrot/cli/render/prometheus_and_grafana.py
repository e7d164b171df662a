"""``karrot render``: prints alert rules and recording rules for Prometheus, and dashboards for Grafana."""

from functools import partial

import click

from karrot.cli.errors import valid
from karrot.known_problems import DOCS_URL


@click.command("alert-rules", short_help="Print alert rules for Prometheus.")
@click.option(
    "--set",
    "changed",
    metavar="NAME=VALUE",
    multiple=True,
    help="Change a threshold listed in docs/alerts.md. Repeatable.",
)
@click.option(
    "--external-url",
    metavar="URL",
    envvar="KARROT_EXTERNAL_URL",
    show_envvar=True,
    help="Karrot's address in a browser. With it, each alert links to a page of Karrot.",
)
@click.option(
    "--runbook-url",
    metavar="URL",
    help="Address of the runbooks.  [default: /runbooks at --external-url, or GitHub without --external-url]",
)
def alert_rules(changed: tuple[str, ...], external_url: str | None, runbook_url: str | None) -> None:
    """Print alert rules for Prometheus: for consumer groups, for Burrow and for Karrot itself."""
    from karrot.render.prometheus_rules import RuleValues, alert_rules

    pairs = dict(text.partition("=")[::2] for text in changed)
    asked = partial(RuleValues, changed=pairs, external_url=external_url, runbook_url=runbook_url, docs_url=DOCS_URL)
    rules = valid(asked)
    click.echo(alert_rules(rules), nl=False)


@click.command("recording-rules")
def recording_rules() -> None:
    """Print recording rules for Prometheus.

    The rules record the lag of each group as a single series, the growth of the lag, the share of time in OK, and
    totals.
    """
    from karrot.render.prometheus_rules import recording_rules

    click.echo(recording_rules(), nl=False)


@click.command("dashboard", short_help="Print a Grafana dashboard.")
@click.argument("board", type=click.Choice(["overview", "group", "itself"]))
@click.option(
    "--external-url",
    metavar="URL",
    envvar="KARROT_EXTERNAL_URL",
    show_envvar=True,
    help="Karrot's address in a browser. With it, the dashboard links to a page of Karrot.",
)
def dashboard(board: str, external_url: str | None) -> None:
    """Print a Grafana dashboard: for all groups, for one group, or for Karrot itself."""
    from karrot.render.dashboards import grafana_dashboard

    click.echo(valid(partial(grafana_dashboard, board, external_url)), nl=False)
