"""A Kafka cluster without ZooKeeper; every broker is a controller too."""

import base64
import logging
import re
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import TopicMetadata
from confluent_kafka.cimpl import NewTopic

from e2e.stack.java import java
from e2e.stack.processes import NotStarted, Server, Servers, wait_until

_CLUSTER_ID = "c3RhY2tzdGFja3N0YWNrMA"
_OFFSETS_TOPIC = "__consumer_offsets"
_CONFIG = """\
node.id={node}
process.roles=broker,controller
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={data}
offsets.topic.num.partitions=4
offsets.topic.replication.factor={replicas}
transaction.state.log.num.partitions=2
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
share.coordinator.state.topic.num.partitions=2
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={in_sync}
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=2
num.replica.fetchers=1
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.backoff.ms=1000
"""


class Position(NamedTuple):
    """The position of a group in one partition from Kafka's own command. None if the command prints ``-``."""

    topic: str
    partition: int
    committed: int | None
    log_end: int | None
    lag: int | None


class Kafka:
    """Brokers numbered from 1, and the clients for them.

    ``bootstrap`` is the address for clients. ``ports`` has two ports per broker, for clients and for the other
    controllers. ``jars`` is the directory of Kafka's classes. ``more_settings`` are lines of the brokers' properties;
    they win over the lines of this module.
    """

    def __init__(
        self, servers: Servers, jars: Path, version: str, ports: Sequence[int], *, more_settings: str = ""
    ) -> None:
        self._more_settings = more_settings
        self._servers = servers
        self.jars = jars
        self.version = version
        self._ports = dict(enumerate(zip(ports[::2], ports[1::2], strict=True), 1))
        self._running: dict[int, Server] = {}

    @property
    def brokers(self) -> list[int]:
        """Return the node ids of the brokers."""
        return list(self._ports)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port, _ in self._ports.values()]

    @property
    def client(self) -> dict[str, str | int | float | bool]:
        """Return properties for a librdkafka client, which logs a broker that is down only if you ask for it."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 2}

    def start(self) -> None:
        """Format the brokers' directories and start the brokers; call `wait` to wait until they answer."""
        self._format()
        for node in self.brokers:
            self.start_broker(node)

    def start_broker(self, node: int) -> None:
        self._running[node] = self._servers.start(
            f"kafka-{node}", java(self.jars, 256, "kafka.Kafka", self._config(node))
        )

    def broker(self, node: int) -> Server:
        """Return the broker's process, which a test can stop cleanly, kill or pause."""
        return self._running[node]

    def wait(self, within_s: float = 120) -> None:
        """Wait until every broker is in the cluster and has every partition of ``__consumer_offsets``."""
        admin = self.admin()
        servers = list(self._running.values())
        wait_until(lambda: self._registered(admin), servers, what="every broker answers", within_s=within_s)
        what = f"{_OFFSETS_TOPIC} is on every broker"
        wait_until(lambda: self._has_offsets_topic(admin), servers, what=what, within_s=within_s)

    def admin(self) -> AdminClient:
        return AdminClient(self.client, logger=logging.getLogger("librdkafka"))

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic on every broker; you can write to it when this returns."""
        admin = self.admin()
        replicas = len(self._running)
        admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(30)
        wait_until(
            lambda: _replicated(_metadata(admin, name), partitions, replicas),
            self._running.values(),
            what=f"topic {name} has its leaders",
        )

    def positions(self, group: str) -> list[Position]:
        """Return the rows of ``kafka-consumer-groups --describe`` in order of topic and partition. Takes seconds."""
        main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        arguments = ("--bootstrap-server", self.bootstrap, "--describe", "--group", group)
        command = java(self.jars, 128, main, *arguments, log_level="error")
        said = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=True).stdout
        words = [line.split() for line in said.splitlines()]
        rows = [each for each in words if each[:1] == [group] and each[2].isdigit()]
        return sorted(Position(row[1], int(row[2]), *map(_number, row[3:6])) for row in rows)

    def _format(self) -> None:
        """Format the first directory with Kafka's own command and copy it for the others, with their own ids.

        So only one JVM starts.
        """
        first, *others = self.brokers
        arguments = ("format", "-t", _CLUSTER_ID, "-c", self._config(first))
        main = "kafka.tools.StorageTool"
        formatting = self._servers.start("kafka-format", java(self.jars, 128, main, *arguments, log_level="warn"))
        if formatting.wait(120):
            raise NotStarted(f"formatting ended with {formatting.exit_code}")
        for node in others:
            shutil.copytree(self._data(first), self._data(node))
            _rename(self._data(node) / "meta.properties", node)

    def _data(self, node: int) -> Path:
        return self._servers.directory / f"kafka-{node}"

    def _config(self, node: int) -> Path:
        port, controller_port = self._ports[node]
        config = self._servers.directory / f"kafka-{node}.properties"
        config.write_text(
            _CONFIG.format(
                node=node,
                port=port,
                controller_port=controller_port,
                voters=",".join(f"{each}@127.0.0.1:{ports[1]}" for each, ports in self._ports.items()),
                data=self._data(node),
                replicas=len(self._ports),
                in_sync=min(2, len(self._ports)),
            )
            + self._more_settings
        )
        return config

    def _registered(self, admin: AdminClient) -> bool:
        try:
            return len(admin.list_topics(timeout=1).brokers) == len(self._ports)
        except KafkaException:
            return False

    def _has_offsets_topic(self, admin: AdminClient) -> bool:
        """Ask about a group: that makes the brokers create the topic, and leaves no group behind."""
        found = _metadata(admin, _OFFSETS_TOPIC)
        if found is None:
            admin.describe_consumer_groups(["nobody"], request_timeout=5)["nobody"].exception(10)
        return _replicated(found, 4, len(self._ports))


def _rename(properties: Path, node: int) -> None:
    directory = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    text = re.sub(r"node\.id=.*", f"node.id={node}", properties.read_text())
    properties.write_text(re.sub(r"directory\.id=.*", f"directory.id={directory}", text))


def _metadata(admin: AdminClient, topic: str) -> TopicMetadata | None:
    try:
        return admin.list_topics(timeout=5).topics.get(topic)
    except KafkaException:
        return None


def _replicated(topic: TopicMetadata | None, partitions: int, replicas: int) -> bool:
    if topic is None or len(topic.partitions) != partitions:
        return False
    return all(each.leader > 0 and len(each.isrs) == replicas for each in topic.partitions.values())


def _number(word: str) -> int | None:
    return None if word == "-" else int(word)
