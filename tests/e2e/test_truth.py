"""Every row of every table equals the row that plain Python calculates from the raw segments or records."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from e2e.stack.kafka import Kafka
from e2e.waiting import wait_for
from karrot.clock import SystemClock
from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.ingest.event_sources import EventsFromArchive
from karrot.pipeline.ingest.job import Ingest, IngestSummary
from karrot.pipeline.offsets.job import LandOffsets
from karrot.pipeline.offsets.log_ends import LogEndPolls, append_ends
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.kafka_read_options import KafkaConnection, StartingOffsets
from karrot.pipeline.stream.record_sources import OFFSETS_TOPIC, RecordsFromKafka
from karrot.watch.kafka_admin import KafkaCluster
from support.pipeline.archive_segments import segment_line, write_segment
from support.pipeline.expected_tables.all_tables import Records, Rules, derived_tables, tables_of_archive
from support.pipeline.expected_tables.archive_lines import read_archive
from support.pipeline.expected_tables.commits import assignments_of, commits_of, log_ends_of
from support.pipeline.expected_tables.comparison import assert_equal_tables, differences, table_rows
from support.pipeline.expected_tables.offset_topic import RawRecord, commit_rows, member_rows
from support.pipeline.hostile_archive import STAGES, write_archive

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

TOPIC, SLOW, PAIR, GONE = "truth", "truth-slow", "truth-pair", "truth-gone"


def taken(spark: SparkSession, archive: Path, tables: Tables) -> IngestSummary:
    """Ingest the new segments, and derive."""
    summary = Ingest(spark, EventsFromArchive(str(archive)), tables).run()
    derive(spark, tables, DeriveRules())
    return summary


def test_the_tables_of_a_hostile_archive_equal_the_calculated_tables_in_one_run_and_in_three(
    kafka_spark: SparkSession, tmp_path: Path
) -> None:
    archive, steps, once = tmp_path / "archive", Tables(str(tmp_path / "steps")), Tables(str(tmp_path / "once"))
    write = write_archive(archive, seed=1)
    for stage in range(STAGES):
        write(stage)
        assert taken(kafka_spark, archive, steps).is_even
    read, expected = read_archive(archive), tables_of_archive(archive, Rules())
    for tables in (steps, once):
        if tables is once:
            total = taken(kafka_spark, archive, once)
            assert (total.lines, total.events, total.duplicates) == (read.lines, len(read.events), read.duplicates)
        assert_equal_tables(Path(tables.directory), expected)


def test_a_thousand_small_segments_and_a_large_one_give_all_their_rows(
    kafka_spark: SparkSession, tmp_path: Path
) -> None:
    """By hand, this was tried with 10,000 small segments and with a segment of 1 GB, in the default heap of 1 GB."""
    archive, tables = tmp_path / "archive", Tables(str(tmp_path / "tables"))
    rng = Random(1)
    for first in range(1, 2_001, 2):
        write_segment(archive, first, [segment_line(first), segment_line(first + 1)])
    long = (json.loads(segment_line(seq)) | {"body": rng.randbytes(2_000).hex()} for seq in range(2_001, 12_001))
    write_segment(archive, 2_001, [json.dumps(values).encode() + b"\n" for values in long])

    total = Ingest(kafka_spark, EventsFromArchive(str(archive)), tables).run()
    assert (total.segments, total.lines, total.events, total.missing) == (1_001, 12_000, 12_000, 0)
    expected = tables_of_archive(archive, Rules())
    streamed = {name: expected[name] for name in ("events", "partitions", "quarantine")}
    assert_equal_tables(Path(tables.directory), streamed)


def test_the_tables_of_a_real_broker_equal_the_tables_calculated_from_its_records(
    kafka: Kafka, kafka_spark: SparkSession, tmp_path: Path
) -> None:
    tables, cluster = Tables(str(tmp_path)), KafkaCluster(kafka.client)
    road = RecordsFromKafka(
        KafkaConnection(tuple(kafka.addresses)), cluster, StartingOffsets("earliest"), OFFSETS_TOPIC, 1_000_000
    )
    polls = LogEndPolls(cluster, timedelta(0), SystemClock())
    kafka.create_topic(TOPIC, 4)

    def looked() -> int:
        polls.if_due()
        look = polls.taken([TOPIC])
        return 0 if look is None else append_ends(kafka_spark, tables, "e2e", look)

    wait_for(lambda: looked() >= 4)  # a partition of a new topic can be without a leader for a moment
    for number in consumed(kafka):
        looked()
        if number in (1, 5):
            LandOffsets(kafka_spark, road, "e2e", tables, tables.checkpoint("offsets")).start().awaitTermination()
    derive(kafka_spark, tables, DeriveRules())

    found = {name: table_rows(tmp_path, name) for name in ("commits", "members", "ends")}
    last = max(row["log_ts_ms"] for name in ("commits", "members") for row in found[name])
    records = [record for record in records_of(kafka) if record.at_ms <= last]
    raw = {"commits": commit_rows(records, "e2e"), "members": member_rows(records, "e2e")}
    for name, rows in raw.items():
        columns = {column for row in rows for column in row}
        known = [{column: row[column] for column in columns} for row in found[name]]
        assert differences(name, rows, known) == []
    expected = derived_tables(
        [], Records(commits_of(raw["commits"]), log_ends_of(found["ends"]), assignments_of(raw["members"])), Rules()
    )
    assert_equal_tables(tmp_path, expected)
    groups = {row["consumer"] for row in expected["partition_lag_minute"]}
    assert {SLOW, PAIR, GONE} <= groups
    assert any(row["consumer"] == PAIR and row["moved_partitions"] for row in expected["rebalances"])
    assert {row["method"] for row in expected["partition_lag_minute"]} >= {"observed", "interpolated"}


def consumed(kafka: Kafka) -> Iterator[int]:
    """Produce and commit in six rounds, and yield the number of each round after it.

    One group is too slow. Another group gets a second member in the middle. A third group is deleted at the end.
    """
    rng = Random(3)
    producer, admin = Producer(kafka.client), kafka.admin()
    told = kafka.client | {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
    with (
        closing(Consumer(told | {"group.id": SLOW})) as slow,
        closing(Consumer(told | {"group.id": PAIR, "client.id": "first"})) as first,
        closing(Consumer(told | {"group.id": PAIR, "client.id": "second"})) as second,
    ):
        slow.subscribe([TOPIC])
        first.subscribe([TOPIC])
        with closing(Consumer(told | {"group.id": GONE})) as gone:
            gone.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)
        for number in range(6):
            for _ in range(rng.randint(20, 60)):
                producer.produce(TOPIC, b"x", partition=rng.choice((0, 0, 1, 2)))
            producer.flush(30)
            if number == 2:
                second.subscribe([TOPIC])
                wait_for(lambda: joined(first, second))
            for member, most in ((slow, 4), (first, 500), (second, 500)):
                messages = member.consume(most, 1.0)
                if messages:
                    member.commit(asynchronous=False)
            if number == 4:
                admin.delete_consumer_groups([GONE])[GONE].result(30)
            yield number


def joined(first: Consumer, second: Consumer) -> bool:
    """Poll both members, so that they rebalance; return whether the second has partitions."""
    for member in (first, second):
        message = member.poll(0.1)
        if message is not None and message.error() is None:
            member.commit(message=message, asynchronous=False)
    return bool(second.assignment())


def records_of(kafka: Kafka) -> list[RawRecord]:
    """Read all records of ``__consumer_offsets``."""
    told = kafka.client | {"group.id": "nobody", "enable.auto.commit": False, "enable.partition.eof": True}
    records = []
    with closing(Consumer(told | {"isolation.level": "read_committed"})) as consumer:
        partitions = consumer.list_topics(OFFSETS_TOPIC, timeout=30).topics[OFFSETS_TOPIC].partitions
        for partition in partitions:
            consumer.assign([TopicPartition(OFFSETS_TOPIC, partition, 0)])
            while (message := consumer.poll(30)) is not None and message.error() is None:
                kind, at_ms = message.timestamp()
                assert kind != TIMESTAMP_NOT_AVAILABLE
                records.append(
                    RawRecord(partition, message.offset() or 0, at_ms, message.key() or b"", message.value())
                )
    return records
