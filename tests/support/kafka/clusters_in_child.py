"""Clusters that a child process of `karrot.watch.client_process` opens by their names."""

import os
import threading
from pathlib import Path
from typing import NoReturn

from karrot.event import TopicPartition
from karrot.watch.cluster_interface import Cluster, ClusterError, Failure, NotConnected
from support.kafka.in_memory_kafka import InMemoryKafka

PLACE = TopicPartition("orders", 0)


def cluster() -> Cluster:
    kafka = InMemoryKafka(ends={PLACE: 12})
    kafka.put("billing", {PLACE: 10})
    kafka.failures["locked"] = Failure("group_authorization_failed", "Broker: Group authorization failed")
    return kafka


def unreachable() -> Cluster:
    return InMemoryKafka(down=ClusterError("_transport", "Connection refused"))


def aborting() -> NoReturn:
    os.abort()


def without_token(asked: Path) -> Cluster:
    """Fail on the first call, as if the endpoint of the credentials was late."""
    if not asked.exists():
        asked.touch()
        raise NotConnected("no credentials yet", "credentials")
    return cluster()


def wrong() -> NoReturn:
    raise NotConnected("No such configuration property")


def never(directory: Path) -> NoReturn:
    """Write the id of this process to the file ``pid``, and never answer."""
    (directory / "new").write_text(str(os.getpid()))
    (directory / "new").rename(directory / "pid")
    threading.Event().wait()
    raise AssertionError
