"""``karrot burrow-config``: prints what to put into burrow.toml."""

from functools import partial

import click

from karrot.cli.errors import valid
from karrot.cli.options import url_option


@click.command("burrow-config")
@url_option
@click.option("--user", help="For Basic authentication.")
@click.option("--template", "only_template", is_flag=True, help="Print only the template file.")
def burrow_config(url: str, user: str | None, *, only_template: bool) -> None:
    """Print what to put into burrow.toml, and why. The template file that it names comes with it."""
    from karrot import render

    text = valid(partial(render.burrow_config, url, user))
    click.echo(render.burrow_template() if only_template else text, nl=False)
