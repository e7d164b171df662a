"""``karrot check-config``: prints the settings that the service would start with."""

from functools import partial
from pathlib import Path

import click

from karrot.cli.errors import stated
from karrot.cli.options import config_option, loader


@click.command("check-config")
@config_option
def check_config(config: Path | None) -> None:
    """Print the settings that a start would run with. Exit code 2 if it would be refused.

    With the cloudwatch reporter, also what the groups now in the log would cost in a month.
    """
    from karrot.settings.options import effective
    from karrot.wiring import cloudwatch_bill, try_out

    loaded = stated(loader(None, config))
    stated(partial(try_out, loaded.settings))
    for name, text in effective(loaded.settings).items():
        click.echo(f"{name}={text}")
    for sentence in stated(partial(cloudwatch_bill, loaded.settings)):
        click.echo(f"# CloudWatch: {sentence}")
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
