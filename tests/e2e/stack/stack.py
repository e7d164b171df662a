"""The whole stack of servers, on free ports."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.stack.burrow import Burrow
from e2e.stack.downloads import Downloads
from e2e.stack.kafka import Kafka
from e2e.stack.processes import Servers
from e2e.stack.prometheus import Prometheus
from e2e.stack.zookeeper import ZooKeeper
from support.service.free_ports import free_ports

NEWEST_KAFKA = "4.3.1"  # a version whose jars can all be downloaded


@dataclass(frozen=True)
class Parts:
    """The parts of a stack to start."""

    brokers: int = 1
    kafka_version: str = "4.1.2"


@dataclass(frozen=True)
class Stack:
    """A running stack; a server that a test adds with ``servers`` ends with the others."""

    kafka: Kafka
    zookeeper: ZooKeeper
    prometheus: Prometheus
    servers: Servers

    def burrow(
        self,
        binary: str,
        *,
        name: str = "burrow",
        cluster: str = "e2e",
        notifiers: str = "",
        offset_refresh: int = 1,
        group_allowlist: str = ".*",
    ) -> Burrow:
        """Start a real Burrow for this Kafka, and wait until it answers; each of several Burrows needs a name."""
        burrow = Burrow(
            self.servers,
            binary,
            self.kafka,
            self.zookeeper,
            name=name,
            cluster=cluster,
            notifiers=notifiers,
            offset_refresh=offset_refresh,
            group_allowlist=group_allowlist,
        )
        burrow.start()
        return burrow


@contextmanager
def running(parts: Parts, directory: Path, downloads: Downloads) -> Iterator[Stack]:
    """Start a stack and wait until it answers; stop all of it afterwards. Its logs stay in the directory.

    Call this from the main thread (see `Server`). Raises `NotStarted` with the ends of all logs as a note.
    """
    with Servers(directory) as servers:
        yield _start(servers, parts, downloads)


def _start(servers: Servers, parts: Parts, downloads: Downloads) -> Stack:
    jars = downloads.jars(parts.kafka_version)
    zookeeper_port, prometheus_port, *kafka_ports = free_ports(2 + 2 * parts.brokers)
    servers.directory.mkdir(parents=True, exist_ok=True)
    kafka = Kafka(servers, jars.kafka, parts.kafka_version, kafka_ports)
    zookeeper = ZooKeeper(servers, jars.zookeeper, zookeeper_port)
    prometheus = Prometheus(servers, downloads.prometheus(), prometheus_port)
    for part in (zookeeper, prometheus, kafka):
        part.start()
    for part in (zookeeper, prometheus, kafka):
        part.wait()
    return Stack(kafka, zookeeper, prometheus, servers)
