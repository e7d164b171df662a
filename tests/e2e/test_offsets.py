"""`LandOffsets` reads an internal topic of a real broker, also while the topic is compacted and restarted."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # their own __init__ does not say so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from e2e.stack.kafka import Kafka
from e2e.waiting import wait_for
from karrot.pipeline.offsets.job import JsonTopic, LandOffsets, OffsetsSummary
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.kafka_read_options import KafkaConnection, StartingOffsets
from karrot.pipeline.stream.record_sources import OFFSETS_TOPIC, RecordsFromKafka
from karrot.watch.kafka_admin import KafkaCluster
from support.kafka.offset_records import commit_key, commit_value

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def commit(kafka: Kafka, group: str, topic: str, offsets: Iterable[int]) -> None:
    """Commit offsets for the group in each partition of the topic, without members."""
    places = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    admin = AdminClient(kafka.client)
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result(30)


def source(kafka: Kafka, topic: str = OFFSETS_TOPIC, most: int = 1_000_000) -> RecordsFromKafka:
    return RecordsFromKafka(
        KafkaConnection(tuple(kafka.addresses)), KafkaCluster(kafka.client), StartingOffsets("earliest"), topic, most
    )


def job(
    spark: SparkSession, road: RecordsFromKafka, directory: Path, json_topic: JsonTopic | None = None
) -> LandOffsets:
    tables = Tables(str(directory))
    return LandOffsets(spark, road, "e2e", tables, tables.checkpoint("offsets"), json_topic)


def run(job: LandOffsets) -> OffsetsSummary:
    query = job.start()
    query.awaitTermination()
    return job.total


def committed(spark: SparkSession, directory: Path, group: str) -> list[tuple[int, int | None]]:
    """Return partition and offset of all commits of a group, in the order of the log."""
    rows = Tables(str(directory)).read(spark, "commits").where(f"consumer = '{group}'").orderBy("log_offset").collect()
    return [(row.partition, row.offset) for row in rows]


def repeated(spark: SparkSession, directory: Path) -> list[tuple[int, int]]:
    """Return the records that the table has more than once."""
    rows = Tables(str(directory)).read(spark, "commits").select("log_partition", "log_offset").collect()
    return [place for place, times in Counter(map(tuple, rows)).items() if times > 1]


def test_spark_reads_an_internal_topic_only_with_its_older_way_to_find_offsets(
    kafka: Kafka, kafka_spark: SparkSession
) -> None:
    kafka.create_topic("read-or-not", 1)
    commit(kafka, "is-there", "read-or-not", [5])
    assigned = {"assign": json.dumps({OFFSETS_TOPIC: [0, 1, 2, 3]}), "kafka.bootstrap.servers": kafka.bootstrap}
    found = {}
    for older in ("false", "true"):
        kafka_spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", older)
        found[older] = kafka_spark.read.format("kafka").options(**assigned).load().count() > 0
    assert found == {"false": False, "true": True}


def test_offsets_of_a_transaction_appear_when_it_commits_and_never_if_it_aborts(
    kafka: Kafka, kafka_spark: SparkSession, tmp_path: Path
) -> None:
    kafka.create_topic("in-transactions", 1)
    commit(kafka, "transactional", "in-transactions", [1])
    producer = Producer(kafka.client | {"transactional.id": "offsets"})
    member = Consumer(kafka.client | {"group.id": "transactional"})
    producer.init_transactions(30)
    for offset, is_aborted in ((2, False), (3, True), (4, False)):
        producer.begin_transaction()
        told = member.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("in-transactions", 0, offset)], told, 30)
        producer.abort_transaction(30) if is_aborted else producer.commit_transaction(30)
    member.close()
    commit(kafka, "transactional", "in-transactions", [5])
    total = run(job(kafka_spark, source(kafka), tmp_path))
    assert [offset for _, offset in committed(kafka_spark, tmp_path, "transactional")] == [1, 2, 4, 5]
    assert total.is_even
    # Three markers and the record of the aborted one.
    assert total.absent >= 4
    assert total.lost == 0


def test_a_stream_that_dies_in_a_batch_has_each_record_once_after_a_restart(
    kafka: Kafka, kafka_spark: SparkSession, tmp_path: Path
) -> None:
    class DiesInTheThird(Tables):
        def append(self, df: DataFrame, name: str, batch_id: str, *, job: str = "") -> int:
            written = super().append(df, name, batch_id, job=job)
            if batch_id.endswith("-000002"):
                raise InterruptedError("killed after the table was written")
            return written

    kafka.create_topic("in-mid-flight", 2)
    kafka.create_topic("as-json", 1)
    for offset in range(1, 31):
        commit(kafka, "restarted", "in-mid-flight", [offset, 100 + offset])
    road = source(kafka, most=12)
    dies = job(kafka_spark, road, tmp_path)
    dies.tables = DiesInTheThird(str(tmp_path))
    with pytest.raises(StreamingQueryException, match="killed after the table was written"):
        run(dies)
    for offset in range(31, 41):
        commit(kafka, "restarted", "in-mid-flight", [offset, 100 + offset])
    topic = JsonTopic(KafkaConnection(tuple(kafka.addresses)), "as-json")
    total = run(job(kafka_spark, road, tmp_path, topic)) + dies.total
    found = committed(kafka_spark, tmp_path, "restarted")
    assert [offset for partition, offset in found if partition == 0] == list(range(1, 41))
    assert [offset for partition, offset in found if partition == 1] == list(range(101, 141))
    assert repeated(kafka_spark, tmp_path) == []
    assert (total.is_even, total.lost, total.duplicates) == (True, 0, 0)
    assert {each.committed for each in kafka.positions("restarted")} == {40, 140}

    # A new checkpoint starts at the beginning: it reads all remaining records again and recognizes them.
    again = job(kafka_spark, source(kafka), tmp_path)
    again.checkpoint = again.tables.checkpoint("another")
    whole = run(again)
    # The broker serves other tests as well, so there can be records that are new.
    new = whole.commits + whole.tombstones + whole.members
    assert whole.duplicates == whole.records - sum(whole.others.values()) - new > 0
    assert committed(kafka_spark, tmp_path, "restarted") == found
    assert repeated(kafka_spark, tmp_path) == []

    read = read_all(kafka, "as-json")
    assert {"topic": "in-mid-flight", "partition": 1, "group": "restarted", "version": 4, "offset": 140}.items() <= (
        [json.loads(value) for value in read if b"restarted" in value][-1].items()
    )


def test_a_consumer_of_the_json_topic_causes_no_loop(kafka: Kafka, kafka_spark: SparkSession, tmp_path: Path) -> None:
    kafka.create_topic("other", 1)
    kafka.create_topic("looped", 1)
    commit(kafka, "somebody", "other", [7])
    commit(kafka, "reads-json", "looped", [1])
    commit(kafka, "reads-json", "other", [8])
    topic = JsonTopic(KafkaConnection(tuple(kafka.addresses)), "looped")
    total = run(job(kafka_spark, source(kafka), tmp_path, topic))
    told = [json.loads(value) for value in read_all(kafka, "looped")]
    assert len(told) == total.published == total.commits + total.tombstones - 2
    assert {each["group"] for each in told if each["topic"] in {"other", "looped"}} == {"somebody"}
    assert topic.readers == {"reads-json"}


def test_a_topic_that_is_compacted_during_the_read_gives_its_rest_and_a_count_of_deleted_records(
    kafka: Kafka, kafka_spark: SparkSession, tmp_path: Path
) -> None:
    """The test uses a copy of the topic, because the broker allows no deletion from the topic itself."""
    small = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}
    admin = AdminClient(kafka.client)
    admin.create_topics([NewTopic("copy", 1, 1, config=small)])["copy"].result(30)
    produce(kafka, "copy", range(100))
    road = source(kafka, "copy")
    first = run(job(kafka_spark, road, tmp_path))
    assert (first.commits, first.offsets, first.lost, first.absent) == (100, 100, 0, 0)

    produce(kafka, "copy", range(100, 400))
    wait_for(lambda: left_after_another(kafka, "copy") < 300)
    second = run(job(kafka_spark, road, tmp_path))
    assert 0 < second.commits < 300
    assert (second.lost, second.absent) == (0, second.offsets - second.commits)
    assert second.absent > 0
    assert repeated(kafka_spark, tmp_path) == []

    end = first.offsets + second.offsets
    change_to_delete(admin, "copy")
    produce(kafka, "copy", range(600, 650))
    for each in admin.delete_records([TopicPartition("copy", 0, end + 20)]).values():
        each.result(30)
    third = run(job(kafka_spark, road, tmp_path))
    assert (third.commits, third.offsets, third.lost, third.absent) == (30, 50, 20, 0)


def produce(kafka: Kafka, topic: str, offsets: Sequence[int]) -> None:
    """Produce a record like a commit for each of these offsets, all with the same key."""
    producer = Producer(kafka.client)
    key = commit_key("copied", "a-topic", 0)
    for offset in offsets:
        producer.produce(topic, commit_value(4, offset), key, partition=0)
    assert producer.flush(30) == 0


def left_after_another(kafka: Kafka, topic: str) -> int:
    """Return the number of remaining records after one more is written; the active segment is not compacted."""
    produce(kafka, topic, [500])
    return len(read_all(kafka, topic))


def read_all(kafka: Kafka, topic: str) -> list[bytes]:
    """Return the values that partition 0 holds now."""
    consumer = Consumer(
        kafka.client | {"group.id": "nobody", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        values.append(message.value() or b"")
    consumer.close()
    return values


def change_to_delete(admin: AdminClient, topic: str) -> None:

    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for each in admin.incremental_alter_configs([resource]).values():
        each.result(30)
