"""``karrot render dashboard``: prints Grafana dashboards."""

from functools import partial

import click

from karrot.cli.errors import valid


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
    from karrot.render.grafana_dashboards import dashboard

    click.echo(valid(partial(dashboard, board, external_url)), nl=False)
