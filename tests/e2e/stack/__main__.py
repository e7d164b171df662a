"""The commands of ``python -m e2e.stack``, which ``make stack-up``, ``make stack-down`` and ``make e2e`` run."""

import sys
import time
from collections.abc import Callable

import click

from e2e.stack import postgres
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kept import Kept, StackIsUp
from e2e.stack.processes import NotStarted
from e2e.stack.stack import NEWEST_KAFKA, Parts

_DEFAULT = Parts()


def _parts(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose the parts to start."""
    for option in (
        click.option("--brokers", type=click.Choice([1, 3]), default=_DEFAULT.brokers, show_default=True),
        click.option("--kafka", "kafka_version", default=_DEFAULT.kafka_version, show_default=True),
        click.option(
            "--karrot-port",
            type=int,
            default=5000,
            show_default=True,
            help="Port of the Karrot that Prometheus and Burrow shall use.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def main() -> None:
    """A real Kafka, ZooKeeper, Prometheus and, if it is installed, Burrow."""


@main.command()
def fetch() -> None:
    """Download the parts that are not in the cache yet, and print Prometheus' path."""
    downloads = Downloads(default_cache())
    start = time.monotonic()
    for version in (_DEFAULT.kafka_version, NEWEST_KAFKA):
        downloads.jars(version)
    downloads.spark_kafka()
    downloads.spark_s3()
    for version in (postgres.OLDEST, postgres.NEWEST):
        downloads.postgres(version)
    downloads.alertmanager()
    click.echo(downloads.prometheus())
    click.echo(f"The stack's parts are in {downloads.cache} ({time.monotonic() - start:.1f} s).", err=True)


@main.command()
@_parts
def up(brokers: int, kafka_version: str, karrot_port: int) -> None:
    """Start a stack that stays up, and print its addresses."""
    start = time.monotonic()
    if not Kept(Downloads(default_cache())).up(Parts(brokers, kafka_version), karrot_port):
        sys.exit(1)
    click.echo(f"# up after {time.monotonic() - start:.1f} s")


@main.command()
def down() -> None:
    """End the stack."""
    click.echo("the stack is down" if Kept(Downloads(default_cache())).down() else "no stack was up")


@main.command(hidden=True)
@_parts
def keep(brokers: int, kafka_version: str, karrot_port: int) -> None:
    """Keep a stack up until SIGTERM."""
    Kept(Downloads(default_cache())).keep(Parts(brokers, kafka_version), karrot_port)


if __name__ == "__main__":
    try:
        main()
    except (NotStarted, StackIsUp) as failed:
        sys.exit("\n".join([f"{failed}", *getattr(failed, "__notes__", [])]))
