"""The commands that run the service, or try out what it would run with."""

import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from karrot.cli.errors import config_option, loader, stated

__all__ = ["COMMANDS"]


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


COMMANDS = (serve, demo, check_config)
