"""Runs librdkafka's mock brokers, and reads the messages of their topics."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition

Record = tuple[int, bytes, bytes]
"""Partition, key and value."""


@contextmanager
def mock_brokers(count: int = 1) -> Iterator[str]:
    """Start this number of brokers and yield their addresses. They end with the block."""
    host = Producer({"test.mock.num.brokers": count, "bootstrap.servers": "ignored"})
    brokers = host.list_topics(timeout=10).brokers
    yield ",".join(f"{each.host}:{each.port}" for each in brokers.values())
    host.flush(0)


def read_topic(bootstrap: str, topic: str) -> list[Record]:
    """Return the messages that a topic has now, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        places = [TopicPartition(topic, partition, 0) for partition in sorted(partitions)]
        missing = sum(consumer.get_watermark_offsets(each, timeout=10)[1] for each in places)
        consumer.assign(places)
        found: list[tuple[int, int, bytes, bytes]] = []
        while len(found) < missing:
            for each in consumer.consume(missing - len(found), timeout=10):
                assert each.error() is None, each.error()
                found.append((each.partition() or 0, each.offset() or 0, each.key() or b"", each.value() or b""))
    finally:
        consumer.close()
    return [(partition, key, value) for partition, _, key, value in sorted(found)]
