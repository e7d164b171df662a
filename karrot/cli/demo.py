"""``karrot demo``: runs the service with a simulated Burrow."""

import sys
from functools import partial
from typing import NoReturn

import click

from karrot.cli.errors import stated


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
