"""``karrot render alert-rules``: prints alerts for Prometheus."""

from functools import partial

import click

from karrot.cli.errors import valid
from karrot.distribution import DOCS_URL


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
