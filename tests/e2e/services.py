"""Services as the tests against real servers want them."""

from pathlib import Path

from e2e.stack.kafka import Kafka
from support.service.karrot_service import Service

CLUSTER = "e2e"


def watching(kafka: Kafka, directory: Path, *, only: str = "", **settings: str) -> Service:
    """One that looks at Kafka each second, at groups whose name begins with ``only``. Enter it to start it."""
    told = {"watch_bootstrap": kafka.bootstrap, "watch_cluster": CLUSTER, "watch_interval": "1s"}
    told["watch_exclude"] = f"^(?!{only})"
    return Service(directory, arguments=(), **told, **settings)
