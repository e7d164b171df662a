"""The ``kafka`` reporter writes to a real broker. Spark makes the same tables from its topic as from the archive."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # their own __init__ does not say so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from pyspark.sql import DataFrame, SparkSession

from e2e.stack.kafka import Kafka
from e2e.waiting import wait_for
from karrot.burrow.payload import to_wire
from karrot.pipeline.ingest.event_sources import EventsFromArchive, EventsFromTopic, EventSource
from karrot.pipeline.ingest.job import Ingest, IngestSummary
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.kafka_read_options import KafkaConnection, StartingOffsets
from karrot.pipeline.stream.record_sources import RecordsFromKafka
from karrot.watch.kafka_admin import KafkaCluster
from support.burrow.lag_events import make_event
from support.burrow.recorded_bodies import recorded_body
from support.kafka.mock_brokers import read_topic
from support.service.karrot_service import Service
from support.service.posting_threads import PostingThreads

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "karrot.events"
BODIES = ("karrot_v1.9.5_err_stall.json", "karrot_v1.9.5_close.json", "karrot_v1.9.5_group_unicode.json")


def service(kafka: Kafka, directory: Path, topic: str) -> Service:
    settings = {"reporters": "prometheus,archive,kafka", "archive_segment_seconds": "1"}
    return Service(directory, arguments=(), kafka_bootstrap=kafka.bootstrap, kafka_topic=topic, **settings)


def is_done(service: Service, reporter: str) -> bool:
    return service.metric("karrot_reporter_backlog_events", reporter=reporter) == 0


def shown(service: Service) -> dict[str, Any]:
    """Return the API's entry of the reporter."""
    told: list[dict[str, Any]] = json.loads(service.get("/api/v1/reporters").body)["reporters"]
    return next(each for each in told if each["name"] == "kafka")


def from_topic(kafka: Kafka, topic: str) -> EventsFromTopic:
    return EventsFromTopic(
        RecordsFromKafka(
            KafkaConnection(tuple(kafka.addresses)), KafkaCluster(kafka.client), StartingOffsets("earliest"), topic
        )
    )


def ingested(spark: SparkSession, road: EventSource, directory: Path) -> IngestSummary:
    return Ingest(spark, road, Tables(str(directory))).run()


def rows(spark: SparkSession, directory: Path, name: str) -> list[str]:
    return sorted(map(str, table(spark, directory, name).collect()))


def table(spark: SparkSession, directory: Path, name: str) -> DataFrame:
    return Tables(str(directory)).read(spark, name)


def limit(kafka: Kafka, topic: str, most: int) -> None:
    """Set the size of the largest batch that the topic accepts, in bytes."""
    entry = ConfigEntry("max.message.bytes", str(most), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(kafka.client)  # keep a reference to it: without one the answer never comes
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_the_topic_and_the_archive_give_the_same_tables(
    kafka: Kafka, kafka_spark: SparkSession, tmp_path: Path
) -> None:
    kafka.create_topic(TOPIC, 3)
    with service(kafka, tmp_path / "data", TOPIC) as running:
        for name in BODIES:
            running.post(recorded_body(name))
        with PostingThreads(running) as load:
            wait_for(lambda: (running.metric("karrot_events_accepted_total") or 0) > 300)
        wait_for(lambda: is_done(running, "kafka"))
        assert running.stop() == 0
    by_archive = ingested(kafka_spark, EventsFromArchive(str(tmp_path / "data" / "archive")), tmp_path / "by-archive")
    by_topic = ingested(kafka_spark, from_topic(kafka, TOPIC), tmp_path / "by-topic")
    assert by_topic.events == by_archive.events == by_topic.lines >= len(load.acknowledged) + len(BODIES)
    for name in ("events", "partitions"):
        assert rows(kafka_spark, tmp_path / "by-topic", name) == rows(kafka_spark, tmp_path / "by-archive", name)

    # A record that is not an event becomes a row of quarantine with its offset; existing rows stay single.
    producer = Producer(kafka.client)
    producer.produce(TOPIC, "no event", partition=1)
    producer.produce(TOPIC, None, key="tombstone", partition=1)
    producer.flush(20)
    assert ingested(kafka_spark, from_topic(kafka, TOPIC), tmp_path / "by-topic") == IngestSummary(
        batches=1, lines=2, quarantined=2
    )
    bad = table(kafka_spark, tmp_path / "by-topic", "quarantine").orderBy("position").collect()
    first = bad[0].position
    assert [(row.source, row.position, row.reason) for row in bad] == [
        (f"{TOPIC}-1", first, "unreadable"),
        (f"{TOPIC}-1", first + 1, "unreadable"),
    ]
    again = ingested(kafka_spark, from_topic(kafka, TOPIC), tmp_path / "by-archive")
    assert (again.events, again.duplicates, again.quarantined) == (0, by_archive.events, 2)

    # Records that the broker deletes before they are read are counted.
    for _ in range(3):
        producer.produce(TOPIC, "no event", partition=1)
    producer.flush(20)
    admin = AdminClient(kafka.client)
    place = TopicPartition(TOPIC, 1, first + 4)
    admin.delete_records([place])[place].result(30)
    deleted = ingested(kafka_spark, from_topic(kafka, TOPIC), tmp_path / "by-topic")
    assert deleted == IngestSummary(batches=1, lines=1, quarantined=1, lost=2)
    assert str(deleted).endswith("; 2 were deleted from the topic before they were read")


def test_a_too_large_event_is_named_and_all_others_arrive_despite_an_outage(kafka: Kafka, tmp_path: Path) -> None:
    topic = "small.events"
    kafka.create_topic(topic, 1)
    limit(kafka, topic, 20_000)
    large = make_event(consumer="large", extras=(("noise", os.urandom(40_000).hex()),))
    with service(kafka, tmp_path / "data", topic) as running:
        kafka.broker(1).stop()
        running.post(recorded_body(BODIES[0]))
        running.post(to_wire(large))
        running.post(recorded_body(BODIES[1]))
        wait_for(lambda: (running.metric("karrot_reporter_failures_total", reporter="kafka") or 0) > 0)
        failing = shown(running)
        kafka.start_broker(1)
        wait_for(lambda: is_done(running, "kafka"))
        told = shown(running)
        assert running.metric("karrot_reporter_dropped_total", reporter="kafka", reason="too_large") == 1
        assert running.stop() == 0
    assert failing["state"] == "failing", failing
    assert told["state"] == "ok", told
    (refused,) = told["last_send"]["refused"]
    assert refused["what"].endswith(" large")
    assert refused["reason"] == "too_large"
    assert [json.loads(value)["seq"] for _, _, value in read_topic(kafka.bootstrap, topic)] == [1, 3]
