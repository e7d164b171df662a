"""A real Burrow and ``karrot pipeline evaluate`` take the same groups from one burrow.toml. Skipped without Burrow."""

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from e2e.stack.stack import Stack
from e2e.waiting import wait_for
from karrot.burrow.client import Burrow as Client
from karrot.pipeline.evaluate.burrow_settings import read_burrow_settings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOPIC, CLUSTER = "joined", "joined"
SECOND = """\
[consumer.second]
class-name = "kafka"
cluster = "joined"
servers = ["{broker}"]
client-profile = "e2e"
group-allowlist = "^py"
group-denylist = "-test$"
"""
GROUPS = ("java-orders", "java-test", "py-orders", "py-test", "go-orders")


def test_several_consumers_of_a_cluster_join(burrow_bin: str, one_broker: Stack) -> None:
    kafka = one_broker.kafka
    second = SECOND.format(broker=kafka.addresses[0])
    burrow = one_broker.burrow(burrow_bin, cluster=CLUSTER, notifiers=second, group_allowlist="^java-")
    kafka.create_topic(TOPIC, 1)
    producer, admin = Producer(kafka.client), kafka.admin()
    producer.produce(TOPIC, b"message", partition=0)
    assert producer.flush(30) == 0
    found = read_burrow_settings((burrow.directory / "burrow.toml").read_text(encoding="utf-8"), CLUSTER)
    read = {group for group in GROUPS if any(each.has(group) for each in found.options["read"])}
    assert read == {"java-orders", "java-test", "py-orders"}

    def known() -> set[str]:
        """Commit for all groups, and return those that Burrow knows. Burrow drops the first commits on a new topic."""
        for group in GROUPS:
            asked = ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, 0, 1)])
            for future in admin.alter_consumer_group_offsets([asked]).values():
                future.result(60)
        with Client(burrow.url) as client:
            return set(client.consumers(CLUSTER)) & {*GROUPS}

    wait_for(lambda: known() >= read)
    assert known() == read
    burrow.server.stop()
