"""On a real broker, a transaction's marker is no lag, and an open transaction and a poison record are found.

`make truth` has more of each kind, and aborted transactions and compacted topics.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient

from e2e.stack.kafka import Kafka
from e2e.test_watch import produce, reading, results, watching
from e2e.waiting import wait_for
from karrot.event import TopicPartition
from karrot.watch.cluster_interface import Failure
from karrot.watch.kafka_admin import KafkaCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

WINDOW = 10


@pytest.fixture
def topic(kafka: Kafka, own_name: str) -> str:
    kafka.create_topic(own_name, 1)
    return own_name


@contextmanager
def transaction(kafka: Kafka, topic: str, records: int) -> Iterator[Producer]:
    """Write this number of records in a transaction and leave it open."""
    settings = {"transactional.id": str(uuid.uuid4()), "transaction.timeout.ms": 300_000, "log_level": 0}
    producer = Producer(kafka.client | settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    yield producer


def commit(consumer: Consumer, topic: str, offset: int) -> None:
    consumer.commit(offsets=[ClientTopicPartition(topic, 0, offset)], asynchronous=False)


def groups(kafka: Kafka) -> set[str]:
    admin = AdminClient(kafka.client)  # keep a reference to it: without one its answers never come
    return {each.group_id for each in admin.list_consumer_groups().result(30).valid}


def last(said: Path, group: str, seen: int) -> dict[str, Any]:
    """Wait for this number of verdicts, and return the newest."""
    wait_for(lambda: len(results(said, group)) >= seen)
    return results(said, group)[-1]


def test_a_consumer_that_committed_all_records_of_a_transaction_is_ok_for_ever(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    with transaction(kafka, topic, 5) as producer:
        producer.commit_transaction(30)
    with reading(kafka, f"read-{topic}", topic) as consumer, watching(kafka, topic, tmp_path, "--json") as said:
        commit(consumer, topic, 5)
        event = last(said, f"read-{topic}", 2 * WINDOW + 5)
    assert {each["status"] for each in results(said, f"read-{topic}")} == {"OK"}
    [partition] = event["partitions"]
    assert (event["totallag"], partition["first_unread"]) == (0, [6, None])
    assert (partition["end"]["offset"], partition["log_end"]) == (5, 6)


def test_an_open_transaction_is_found_within_two_windows(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    group = f"read-{topic}"
    produce(kafka, topic, [3])
    with reading(kafka, group, topic) as consumer, watching(kafka, topic, tmp_path, "--json") as said:
        commit(consumer, topic, 3)
        last(said, group, WINDOW)
        with transaction(kafka, topic, 1) as producer:
            produce(kafka, topic, [4])
            before = len(results(said, group))
            wait_for(lambda: results(said, group)[-1]["status"] == "ERR")
            event = results(said, group)[-1]
            assert len(results(said, group)) - before <= 2 * WINDOW
            [partition] = event["partitions"]
            assert (partition["status"], partition["first_unread"]) == ("OPEN_TRANSACTION", [3, None])
            assert event["totallag"] == partition["current_lag"] == 5
            producer.commit_transaction(30)
        commit(consumer, topic, 9)
        wait_for(lambda: results(said, group)[-1]["status"] == "OK")
    assert {each["ID"] for each in results(said, group) if each["status"] == "ERR"} == {event["ID"]}


def test_a_record_that_a_consumer_cannot_handle_is_an_incident_with_the_offset_and_time_of_the_record(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    group = f"fails-{topic}"
    produce(kafka, topic, [8])
    with reading(kafka, group, topic) as consumer, watching(kafka, topic, tmp_path, "--json") as said:
        commit(consumer, topic, 7)
        wait_for(lambda: bool(results(said, group)) and results(said, group)[-1]["status"] == "ERR")
    event = results(said, group)[-1]
    [partition] = event["partitions"]
    assert (partition["status"], partition["current_lag"], partition["owner"]) == ("STALL", 1, "/127.0.0.1")
    offset, written_ms = partition["first_unread"]
    assert offset == 7
    assert 0 < partition["end"]["timestamp"] - written_ms < 120_000


def test_a_read_creates_no_group_and_gives_a_failure_where_no_record_can_be_read(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, [3])
    place, missing = TopicPartition(topic, 0), TopicPartition(f"no-{topic}", 0)
    before = groups(kafka)
    found = KafkaCluster(kafka.client).first_unread({place: 99, missing: 0})
    assert [each.reason for each in found.values() if isinstance(each, Failure)] == ["_auto_offset_reset", "_timed_out"]
    assert groups(kafka) == before
