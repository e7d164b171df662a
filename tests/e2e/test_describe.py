"""``karrot history describe`` on what a real broker wrote, against what Kafka's own command says of it."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from pyspark.sql import SparkSession

from e2e.stack.kafka import Kafka, Position
from karrot.clock import SystemClock
from karrot.history import GroupDescription, History
from karrot.pipeline.brokers import Brokers, Start
from karrot.pipeline.ends import EndsPoll
from karrot.pipeline.jobs.offsets import LandOffsets
from karrot.pipeline.records import OFFSETS_TOPIC, FromKafka
from karrot.pipeline.tables import Tables
from karrot.watch.admin import KafkaCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOPIC, GROUP, LONE = "described", "describes", "described-alone"
LONG = "note " * 60
"""Metadata of more than 126 bytes, which Burrow misreads in the records of Kafka 4.1 and later."""


@pytest.fixture
def member(kafka: Kafka) -> Iterator[Consumer]:
    """A consumer of three partitions that has committed in two."""
    kafka.create_topic(TOPIC, 3)
    producer = Producer(kafka.client)
    for number in range(60):
        producer.produce(TOPIC, b"x", partition=number % 3)
    producer.flush(30)
    told = {"group.id": GROUP, "client.id": "describer", "enable.auto.commit": False}
    with closing(Consumer(kafka.client | told)) as consumer:
        consumer.subscribe([TOPIC])
        while len(consumer.assignment()) < 3:
            consumer.poll(0.2)
        places = [TopicPartition(TOPIC, 0, 7, metadata=LONG), TopicPartition(TOPIC, 2, 20)]
        consumer.commit(offsets=places, asynchronous=False)
        yield consumer


def land(spark: SparkSession, kafka: Kafka, directory: Path) -> None:
    """What is in ``__consumer_offsets``, and where the topics' logs end."""
    tables, cluster = Tables(str(directory)), KafkaCluster(kafka.client)
    source = FromKafka(Brokers(tuple(kafka.addresses)), cluster, Start("earliest"), OFFSETS_TOPIC, 1_000_000)
    poll = EndsPoll(spark, tables, "e2e", cluster, SystemClock(), timedelta(seconds=1))
    job = LandOffsets(spark, source, "e2e", tables, tables.checkpoint("offsets"), seen=poll.seen)
    job.start().awaitTermination()
    poll.look()


def positions(described: GroupDescription) -> list[Position]:
    return [
        Position(each.topic, each.partition, each.current_offset, each.log_end_offset, each.lag)
        for each in described.partitions
    ]


def test_a_group_is_described_as_kafkas_own_command_describes_it(
    kafka: Kafka, member: Consumer, kafka_spark: SparkSession, tmp_path: Path
) -> None:
    alone = ConsumerGroupTopicPartitions(LONE, [TopicPartition(TOPIC, 1, 3)])
    admin = kafka.admin()
    admin.alter_consumer_group_offsets([alone])[LONE].result(30)
    land(kafka_spark, kafka, tmp_path)
    with History(tmp_path) as history:
        described, lone = (history.describe(group, datetime.now(UTC)) for group in (GROUP, LONE))
        assert described is not None
        assert lone is not None
        assert positions(described) == kafka.positions(GROUP)
        assert positions(lone) == kafka.positions(LONE) == [Position(TOPIC, 1, 3, 20, 17)]
    assert {each.partition: (each.current_offset, each.lag) for each in described.partitions} == {
        0: (7, 13),
        1: (None, None),
        2: (20, 0),
    }
    owners = {(each.consumer_id, each.client_id) for each in described.partitions}
    assert owners == {(member.memberid(), "describer")}
    assert (described.lag, described.unknown_lags, described.members, lone.members) == (13, 1, 1, None)
