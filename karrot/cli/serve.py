"""``karrot serve``: runs the service."""

import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from karrot.cli.errors import stated
from karrot.cli.options import config_option, loader


@click.command()
@click.option("--bind", metavar="HOST:PORT", help="Where to listen; [::]:5000 takes IPv6 and IPv4.")
@config_option
def serve(bind: str | None, config: Path | None) -> NoReturn:
    """Run the service.

    SIGTERM ends it when the requests under way are answered; SIGHUP reads the settings again.
    """
    from karrot import wiring

    sys.exit(stated(partial(wiring.serve, loader(bind, config))))
