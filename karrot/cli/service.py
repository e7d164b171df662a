"""``karrot serve`` and ``demo`` run the service; the other commands here check it, or set it up with Burrow."""

import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from karrot.cli.errors import NotDone, stated, valid
from karrot.cli.options import config_option, loader, url_option, value_of

_OK = 200


@click.command()
@click.option("--bind", metavar="HOST:PORT", help="Where to listen; [::]:5000 takes IPv6 and IPv4.")
@config_option
def serve(bind: str | None, config: Path | None) -> NoReturn:
    """Run the service.

    SIGTERM ends it when the requests under way are answered; SIGHUP reads the settings again.
    """
    from karrot import wiring

    sys.exit(stated(partial(wiring.serve, loader(bind, config))))


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Where to listen; without it 5000 or the next free one.")
@click.option("--groups", type=click.IntRange(1, 10_000), default=24, show_default=True, help="Simulated groups.")
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed tells the same story.")
@click.option(
    "--speed", type=click.FloatRange(0.1, 100), default=1, show_default=True, help="Scales rates and intervals."
)
def demo(port: int | None, groups: int, seed: int, speed: float) -> NoReturn:
    """Run the service with a simulated Burrow. Needs neither Kafka nor AWS; Ctrl-C ends both."""
    from karrot.demo.demo import demo as run_demo

    sys.exit(stated(partial(run_demo, port, groups, seed, speed)))


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
    if answer.status != _OK:
        raise NotDone(f"{answer.status or 'unhealthy'}: {answer.body}")
    click.echo(answer.body.strip())


def _own_address(config: Path | None) -> str:
    settings = loader(None, config)().settings
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    bind = settings.bind._replace(host=loopback.get(settings.bind.host, settings.bind.host))
    return f"{'https' if settings.tls_cert else 'http'}://{bind}"


@click.command("burrow-config")
@url_option
@click.option("--user", help="For Basic authentication.")
@click.option("--template", "only_template", is_flag=True, help="Print only the template file.")
def burrow_config(url: str, user: str | None, *, only_template: bool) -> None:
    """Print what to put into burrow.toml, and why. The template file that it names comes with it."""
    from karrot import render

    text = valid(partial(render.burrow_config, url, user))
    click.echo(render.burrow_template() if only_template else text, nl=False)


@click.command()
def version() -> None:
    """Print the version."""
    from karrot import __version__

    click.echo(f"karrot {__version__}")
