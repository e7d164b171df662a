"""``karrot healthcheck``: asks Karrot whether it is alive."""

from functools import partial
from pathlib import Path

import click

from karrot.cli.errors import NotDone, stated
from karrot.cli.options import config_option, loader, value_of

OK = 200


@click.command()
@click.option("--url", help="Karrot's address; without it this machine and KARROT_BIND.")
@config_option
def healthcheck(url: str | None, config: Path | None) -> None:
    """Ask /healthz; exit code 0 if Karrot is alive, 1 if not."""
    from karrot.cli import http_client
    from karrot.settings import types

    given = None if url is None else value_of(types.url, "--url", url)
    address = given or stated(partial(_own_address, config))
    answer = http_client.fetch(f"{address}/healthz")
    if answer.status != OK:
        raise NotDone(f"{answer.status or 'unhealthy'}: {answer.body}")
    click.echo(answer.body.strip())


def _own_address(config: Path | None) -> str:
    settings = loader(None, config)().settings
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    bind = settings.bind._replace(host=loopback.get(settings.bind.host, settings.bind.host))
    return f"{'https' if settings.tls_cert else 'http'}://{bind}"
