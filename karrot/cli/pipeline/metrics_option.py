"""Defines the option ``--metrics-port`` of commands that stay, and serves their metrics."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from karrot.cli.errors import Refused

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

metrics_port_option = click.option(
    "--metrics-port",
    type=click.IntRange(1, 65_535),
    metavar="PORT",
    help="Serve /metrics for Prometheus and /healthz for a probe on this port, on all addresses.",
)


@contextmanager
def served(port: int | None, metrics: "Collector", health: Callable[[], str | None]) -> Iterator[None]:
    """Serve the metrics, if there is a port. Raises Refused if the port is in use."""
    from prometheus_client import CollectorRegistry

    from karrot.pipeline.stream.metrics_port import MetricsPort

    if port is None:
        yield
        return
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server = MetricsPort(registry, port, health)
    except OSError as error:
        raise Refused(f"--metrics-port {port}: {error.strerror}") from error
    with server:
        yield
