"""`watch` on real brokers agrees with Kafka's own command about the same groups."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from e2e.figures import Figures
from e2e.stack.java import java
from e2e.stack.kafka import Kafka, Position
from e2e.stack.stack import Stack
from e2e.waiting import wait_for
from karrot.event import TopicPartition
from karrot.watch.cluster_interface import ClusterError, Description, Failure
from karrot.watch.kafka_admin import KafkaCluster
from support.service.karrot_service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

INTERVAL_S = 0.5


@pytest.fixture(params=[pytest.param("one_broker", marks=pytest.mark.real_server), "newest_kafka"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    stack: Stack = request.getfixturevalue(request.param)
    return stack.kafka


@pytest.fixture
def topic(kafka: Kafka, own_name: str) -> str:
    kafka.create_topic(own_name, 3)
    return own_name


def produce(kafka: Kafka, topic: str, counts: list[int]) -> None:
    producer = Producer(kafka.client)
    for partition, count in enumerate(counts):
        for _ in range(count):
            producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0


def commit(kafka: Kafka, group: str, topic: str, offsets: list[int]) -> None:
    """Commit offsets for the group, which has no members."""
    partitions = [ClientTopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
    asked = [ConsumerGroupTopicPartitions(group, partitions)]
    admin = AdminClient(kafka.client)  # keep a reference to it: without one its answers never come
    found = admin.alter_consumer_group_offsets(asked)[group].result(30)
    assert [each.error for each in found.topic_partitions] == [None] * len(offsets)


@contextmanager
def reading(kafka: Kafka, group: str, topic: str, **properties: str) -> Iterator[Consumer]:
    """Start a member that has its assignment and stays in the group; it does not commit by itself."""
    consumer = Consumer(
        kafka.client | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False} | properties
    )
    consumer.subscribe([topic])
    wait_for(lambda: consumer.poll(0.1) is not None)
    stop = threading.Event()

    def go_on() -> None:
        while not stop.wait(0.1):
            consumer.poll(0)

    heart = threading.Thread(target=go_on, daemon=True)
    heart.start()
    try:
        yield consumer
    finally:
        stop.set()
        heart.join()
        consumer.close()


@contextmanager
def watching(kafka: Kafka, topic: str, directory: Path, *arguments: str) -> Iterator[Path]:
    """Start `karrot watch` for the groups of a topic as a process; yield the file of its output."""
    said = directory / "said"
    command = ["watch", "--bootstrap-servers", kafka.bootstrap, "--cluster", "e2e", "--every", str(INTERVAL_S)]
    command += ["--exclude-groups", f"^(?!.*{topic})"]
    with said.open("w") as file:
        process = subprocess.Popen([sys.executable, "-m", "karrot", *command, *arguments], stdout=file)
        try:
            yield said
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def results(said: Path, group: str) -> list[dict[str, Any]]:
    """Return the verdicts on a group that were printed as Burrow's JSON."""
    lines = said.read_text().splitlines(keepends=True)
    events = [json.loads(line)["Event"] for line in lines if line.endswith("\n")]
    return [event | event["Result"] for event in events if event["Group"] == group]


def test_lag_by_partition_equals_that_of_kafkas_own_command(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    produce(kafka, topic, [500, 251, 249])
    commit(kafka, f"skewed-{topic}", topic, [20, 40, 249])
    with watching(kafka, topic, tmp_path, "--json") as said:
        wait_for(lambda: any(each["status"] == "ERR" for each in results(said, f"skewed-{topic}")))
    event = results(said, f"skewed-{topic}")[-1]
    seen = [
        Position(each["topic"], each["partition"], each["end"]["offset"], None, each["current_lag"])
        for each in event["partitions"]
    ]
    told = kafka.positions(f"skewed-{topic}")
    assert seen == [each._replace(log_end=None) for each in told]
    assert event["totallag"] == sum(each.lag or 0 for each in told) == 691
    assert event["maxlag"]["current_lag"] == 480
    assert [each["status"] for each in event["partitions"]] == ["STOP", "STOP", "OK"]
    assert event["Extras"].pop("topic_ids").startswith(f"{topic}=")
    assert event["Extras"] == {"coordinator": "1", "members": "0", "rebalances": "0", "state": "Empty"}


def test_watch_reads_groups_of_every_kind_from_kafka(kafka: Kafka, topic: str) -> None:
    """Use every request of the protocol, with groups that are empty, active, unknown or have unusual names."""
    group, odd = f"live-{topic}", f"früh/{topic} 🥕"
    produce(kafka, topic, [5, 5, 5])
    commit(kafka, odd, topic, [1, 2, 3])
    cluster = KafkaCluster(kafka.client)
    with reading(kafka, group, topic) as consumer:
        consumer.commit(offsets=[ClientTopicPartition(topic, 1, 4)], asynchronous=False)
        listing = cluster.groups()
        assert (listing.is_complete, listing.groups[group], listing.groups[odd]) == (True, "Stable", "Empty")
        described = cluster.describe([group, odd, "nobody"])
        live = described[group]
        assert isinstance(live, Description)
        assert live.members is not None
        [member] = live.members
        assert (member.host, sorted(member.assigned)) == (
            "/127.0.0.1",
            [TopicPartition(topic, number) for number in range(3)],
        )
        assert live.coordinator in kafka.brokers
        assert described["nobody"] == Description("Dead", (), live.coordinator)
        assert cluster.committed([group, odd, "nobody"]) == {
            group: {TopicPartition(topic, 1): 4},
            odd: {TopicPartition(topic, number): number + 1 for number in range(3)},
            "nobody": {},
        }
    places = [TopicPartition(topic, 0), TopicPartition(topic, 77), TopicPartition("no-such-topic", 0)]
    ends = cluster.log_ends(places)
    assert ends[places[0]] == 5
    failures = [ends[place] for place in places[1:]]
    assert [each.reason for each in failures if isinstance(each, Failure)] == ["unknown_topic_or_part"] * 2


def test_a_recreated_topic_has_another_id(kafka: Kafka, topic: str) -> None:
    cluster = KafkaCluster(kafka.client)
    before = cluster.topic_ids([topic, "no-such-topic"])
    assert before.keys() == {topic}
    admin = kafka.admin()
    admin.delete_topics([topic])[topic].result(30)
    kafka.create_topic(topic, 3)
    after = cluster.topic_ids([topic])
    assert len(before[topic]) == len(after[topic]) == 22
    assert before[topic] != after[topic]


def test_a_share_group_is_counted_and_not_denied(newest_kafka: Stack, own_name: str) -> None:
    kafka = newest_kafka.kafka
    kafka.create_topic(own_name, 1)
    commit(kafka, f"{own_name}-classic", own_name, [0])
    share = f"{own_name}-share"
    main = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    arguments = ("--bootstrap-server", kafka.bootstrap, "--topic", own_name, "--group", share)
    process = subprocess.Popen(list(map(str, java(kafka.jars, 128, main, *arguments, log_level="error"))))
    cluster = KafkaCluster(kafka.client)
    try:
        # A client lists groups of all kinds once a minute, so each look needs a client of its own.
        wait_for(lambda: share in KafkaCluster(kafka.client).groups().others, timeout_s=60)
        listing = cluster.groups()
    finally:
        process.kill()
        process.wait()
    assert f"{own_name}-classic" in listing.groups
    assert share not in listing.groups


def test_inside_the_service_verdicts_state_and_retention_are_on_the_metrics_page(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    group = f"served-{topic}"
    produce(kafka, topic, [100, 0, 0])
    commit(kafka, group, topic, [10, 0, 0])
    admin = AdminClient(kafka.client)
    for each in admin.delete_records([ClientTopicPartition(topic, 0, 30)]).values():
        each.result(30)
    data = tmp_path / "data"
    with Service(
        data,
        partition_metrics="true",
        watch_bootstrap=kafka.bootstrap,
        watch_cluster="e2e",
        watch_interval="1s",
        watch_exclude_groups=f"^(?!.*{topic})",
    ) as service:

        def samples() -> dict[tuple[str, str], float]:
            text = service.get("/metrics").body.decode()
            return {
                (sample.name, sample.labels.get("state") or sample.labels.get("partition", "")): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.labels.get("consumer") == group and "status" not in sample.labels
            }

        wait_for(lambda: samples().get(("karrot_consumer_status_code", "")) == 3)
        found = samples()
        ready = service.get("/readyz").json
    assert found["karrot_consumer_lag", ""] == 70
    assert [found["karrot_partition_lag", str(number)] for number in range(3)] == [70, 0, 0]
    assert found["karrot_consumer_status_code", ""] == 3
    assert found["karrot_consumer_group_state", "Empty"] == 1
    assert found["karrot_consumer_group_state", "Stable"] == 0
    assert found["karrot_consumer_members", ""] == 0
    assert found["karrot_consumer_messages_lost", ""] == 20
    assert found["karrot_consumer_retention_margin", ""] == 0
    assert ready["components"]["watch"]["state"] == "ok"


def test_an_offset_past_the_log_end_is_an_error(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    group = f"ahead-{topic}"
    produce(kafka, topic, [20, 0, 0])
    commit(kafka, group, topic, [10_000, 0, 0])
    with watching(kafka, topic, tmp_path, "--json") as said:
        wait_for(lambda: bool(results(said, group)))
    event = results(said, group)[0]
    assert (event["status"], event["partitions"][0]["status"]) == ("ERR", "BEYOND_END")


def test_a_consumer_that_never_commits_is_an_error_and_its_lag_is_unknown(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    group = f"fails-{topic}"
    produce(kafka, topic, [50, 50, 50])

    def newest() -> dict[str, Any]:
        found = results(said, group)
        return found[-1] if found else {"status": None}

    with reading(kafka, group, topic), watching(kafka, topic, tmp_path, "--json") as said:
        wait_for(lambda: newest()["status"] == "OK")
        assert newest()["totallag"] is None
        produce(kafka, topic, [1, 0, 0])
        wait_for(lambda: newest()["status"] == "ERR")
    assert [(each["status"], each.get("current_lag")) for each in newest()["partitions"]] == [
        ("NEVER_COMMITTED", None)
    ] * 3


def test_a_thousand_groups_of_ten_partitions_are_polled(one_broker: Stack, figures: Figures) -> None:
    kafka = one_broker.kafka
    kafka.create_topic("many", 10)
    produce(kafka, "many", [100] * 10)
    admin = AdminClient(kafka.client)
    offsets = [ClientTopicPartition("many", number, 50) for number in range(10)]
    pending = [
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(f"many-{number}", offsets)])
        for number in range(1000)
    ]
    for each in pending:
        for future in each.values():
            future.result(60)
    cluster = KafkaCluster(kafka.client)
    started = time.process_time()
    groups = [each for each in cluster.groups().groups if each.startswith("many-")]
    cluster.describe(groups)
    committed = cluster.committed(groups)
    ends = cluster.log_ends({place for each in committed.values() if not isinstance(each, Failure) for place in each})
    figures.add("of one core for a poll of 1000 groups", time.process_time() - started)
    assert len(groups) == 1000
    assert committed == {group: {TopicPartition("many", number): 50 for number in range(10)} for group in groups}
    assert ends == {TopicPartition("many", number): 100 for number in range(10)}
    for deleted in admin.delete_consumer_groups(groups).values():  # the broker serves other tests as well
        deleted.result(60)


def test_a_broker_that_is_down_affects_only_its_own_partitions(stack: Stack) -> None:
    kafka = stack.kafka
    admin = AdminClient(kafka.client)
    one_each = {number: [node] for number, node in enumerate(kafka.brokers)}
    asked = NewTopic("one-copy", len(one_each), replica_assignment=list(one_each.values()))
    admin.create_topics([asked])["one-copy"].result(30)
    places = [TopicPartition("one-copy", number) for number in one_each]
    cluster = KafkaCluster(kafka.client, timeout_s=10)
    wait_for(lambda: cluster.log_ends(places) == dict.fromkeys(places, 0))
    kafka.broker(3).kill()
    try:
        expected = {
            places[0]: 0,
            places[1]: 0,
            places[2]: Failure("leader_not_available", "no broker leads the partition"),
        }
        wait_for(lambda: _answer(cluster, places) == expected, 120)
    finally:
        kafka.start_broker(3)
        kafka.wait()
    wait_for(lambda: cluster.log_ends(places) == dict.fromkeys(places, 0))


def _answer(cluster: KafkaCluster, places: list[TopicPartition]) -> Mapping[TopicPartition, int | Failure] | None:
    """The log ends, unless the client still asks the dead broker."""
    try:
        return cluster.log_ends(places)
    except ClusterError:
        return None
