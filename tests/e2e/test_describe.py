"""``karrot history describe`` agrees with Kafka's own command about the records of a real broker."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from pyspark.sql import SparkSession

from e2e.stack.kafka import Kafka, Position
from karrot.cli.history import described_lines
from karrot.clock import SystemClock
from karrot.history.answers_and_errors import GroupDescription
from karrot.history.table_queries import History
from karrot.pipeline.offsets.job import LandOffsets
from karrot.pipeline.offsets.log_ends import LogEndPolls
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.kafka_read_options import KafkaConnection, StartingOffsets
from karrot.pipeline.stream.record_sources import OFFSETS_TOPIC, RecordsFromKafka
from karrot.watch.kafka_admin import KafkaCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOPIC, GROUP, LONE, NEW = "described", "describes", "described-alone", "described-by-brokers"
LONG = "note " * 60
"""Metadata of more than 126 bytes, which Burrow misreads in the records of Kafka 4.1 and later."""


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    """Create a topic of three partitions with twenty messages in each."""
    kafka.create_topic(TOPIC, 3)
    producer = Producer(kafka.client)
    for number in range(60):
        producer.produce(TOPIC, b"x", partition=number % 3)
    producer.flush(30)
    return TOPIC


@contextmanager
def consuming(kafka: Kafka, topic: str, group: str, **told: str) -> Iterator[Consumer]:
    """Start a consumer that has all three partitions."""
    with closing(Consumer(kafka.client | {"group.id": group, "enable.auto.commit": False, **told})) as consumer:
        consumer.subscribe([topic])
        while len(consumer.assignment()) < 3:
            consumer.poll(0.2)
        yield consumer


def land(spark: SparkSession, kafka: Kafka, directory: Path) -> None:
    """Land the records of ``__consumer_offsets`` and the log ends of the topics."""
    tables, cluster = Tables(str(directory)), KafkaCluster(kafka.client)
    source = RecordsFromKafka(
        KafkaConnection(tuple(kafka.addresses)), cluster, StartingOffsets("earliest"), OFFSETS_TOPIC, 1_000_000
    )
    polls = LogEndPolls(cluster, timedelta(seconds=1), SystemClock())
    job = LandOffsets(spark, source, "e2e", tables, tables.checkpoint("offsets"), polls=polls)
    job.start().awaitTermination()


def positions(described: GroupDescription) -> list[Position]:
    return [
        Position(each.topic, each.partition, each.current_offset, each.log_end_offset, each.lag)
        for each in described.partitions
    ]


def test_a_group_is_described_as_in_kafkas_own_command(
    kafka: Kafka, topic: str, kafka_spark: SparkSession, tmp_path: Path
) -> None:
    alone = ConsumerGroupTopicPartitions(LONE, [TopicPartition(topic, 1, 3)])
    admin = kafka.admin()
    admin.alter_consumer_group_offsets([alone])[LONE].result(30)
    with consuming(kafka, topic, GROUP, **{"client.id": "describer"}) as member:
        places = [TopicPartition(topic, 0, 7, metadata=LONG), TopicPartition(topic, 2, 20)]
        member.commit(offsets=places, asynchronous=False)
        land(kafka_spark, kafka, tmp_path)
        with History(tmp_path) as history:
            described, lone = (history.describe(group, datetime.now(UTC)) for group in (GROUP, LONE))
        assert described is not None
        assert lone is not None
        assert positions(described) == kafka.positions(GROUP)
        owners = {(each.consumer_id, each.client_id) for each in described.partitions}
        assert owners == {(member.memberid(), "describer")}
    assert positions(lone) == kafka.positions(LONE) == [Position(topic, 1, 3, 20, 17)]
    assert {each.partition: (each.current_offset, each.lag) for each in described.partitions} == {
        0: (7, 13),
        1: (None, None),
        2: (20, 0),
    }
    assert (described.lag, described.unknown_lags, described.members, lone.members) == (13, 1, 1, None)


def test_a_group_with_the_kip_848_protocol_has_known_lags_and_unknown_owners(
    kafka: Kafka, topic: str, kafka_spark: SparkSession, tmp_path: Path
) -> None:
    with consuming(kafka, topic, NEW, **{"group.protocol": "consumer"}) as member:
        member.commit(offsets=[TopicPartition(topic, 1, 5)], asynchronous=False)
        land(kafka_spark, kafka, tmp_path)
        with History(tmp_path) as history:
            described = history.describe(NEW, datetime.now(UTC))
        assert described is not None
        assert positions(described) == [each for each in kafka.positions(NEW) if each.committed is not None]
    assert [(each.current_offset, each.lag, each.consumer_id) for each in described.partitions] == [(5, 15, None)]
    assert described.members is None
    *_, why = described_lines(described)
    assert why.startswith("the owners are unknown: ")
