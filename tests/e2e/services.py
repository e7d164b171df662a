"""Karrot services for the tests against real servers."""

from pathlib import Path

from e2e.stack.kafka import Kafka
from support.service.karrot_service import Service

CLUSTER = "e2e"


def watching(kafka: Kafka, directory: Path, *, only: str = "", **settings: str) -> Service:
    """Return a service that polls Kafka each second for groups with the prefix ``only``. Enter it to start it."""
    told = {"watch_bootstrap": kafka.bootstrap, "watch_cluster": CLUSTER, "watch_interval": "1s"}
    told["watch_exclude_groups"] = f"^(?!{only})"
    return Service(directory, arguments=(), **told, **settings)
