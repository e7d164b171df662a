"""The real client reads librdkafka's own mock brokers, which have topics and commits but no lists of groups."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from karrot.event import FirstUnread, TopicPartition
from karrot.watch.cluster_interface import ClusterError, Failure, Listing, NotConnected, connect
from karrot.watch.kafka_admin import KafkaCluster, _failure

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Start two mock brokers with a topic of four partitions that hold 10, 11, 12 and 13 messages."""
    host = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "ignored"})
    brokers = host.list_topics(timeout=10).brokers
    address = ",".join(f"{each.host}:{each.port}" for each in brokers.values())
    producer = Producer({"bootstrap.servers": address})
    for partition in range(4):
        for number in range(10 + partition):
            producer.produce("orders", str(number), partition=partition)
    assert producer.flush(20) == 0
    yield address
    host.flush(0)


def test_an_unknown_group_has_no_commits(bootstrap: str) -> None:
    """The mock has no answer for all offsets of a group; a test with a real broker covers those."""
    assert KafkaCluster({"bootstrap.servers": bootstrap}).committed(["nobody"]) == {"nobody": {}}


def test_log_ends_and_starts_of_all_partitions_are_read_at_once(bootstrap: str) -> None:
    cluster = KafkaCluster({"bootstrap.servers": bootstrap})
    places = [TopicPartition("orders", number) for number in range(4)]
    assert cluster.log_ends(places) == {TopicPartition("orders", number): 10 + number for number in range(4)}
    assert cluster.log_starts(places) == dict.fromkeys(places, 0)
    assert cluster.log_ends([]) == {}


def test_a_missing_cluster_is_an_error_with_the_reason() -> None:
    cluster = KafkaCluster({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=1)
    with pytest.raises(ClusterError) as raised:
        cluster.groups()
    assert raised.value.reason.startswith("_")
    assert " in state " not in str(raised.value)  # no part of it differs each time
    found = cluster.committed(["g"])["g"]
    assert isinstance(found, Failure)


def test_kafkas_name_of_an_error_is_the_reason() -> None:
    denied = _failure(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert denied == Failure("group_authorization_failed", "Broker: Group authorization failed")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sasl.nosuch=hunter2", 'No such configuration property: "sasl.nosuch"'),
        ("security.protocol=hunter2", 'Invalid value "***" for configuration property "security.protocol"'),
    ],
)
def test_wrong_properties_are_reported_with_their_file_and_without_values(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(NotConnected) as raised:
        connect(["kafka:9092"], file)
    assert str(raised.value) == f"{file}: {said}"


def test_the_client_has_the_calls_that_watch_makes() -> None:
    calls = ("list_consumer_groups", "list_groups", "describe_consumer_groups", "list_consumer_group_offsets")
    for call in (*calls, "list_offsets"):
        assert callable(getattr(AdminClient, call))


def test_groups_that_only_the_old_call_lists_are_no_consumer_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    cluster = KafkaCluster({"bootstrap.servers": "127.0.0.1:1"}, seconds=lambda: now[0])
    groups = [SimpleNamespace(id="billing"), SimpleNamespace(id="share-orders")]
    consumers = SimpleNamespace(valid=[SimpleNamespace(group_id="billing")], errors=[])
    listed: Future[Any] = Future()
    listed.set_result(consumers)
    monkeypatch.setattr(AdminClient, "list_consumer_groups", lambda *_, **__: listed)
    monkeypatch.setattr(AdminClient, "list_groups", lambda *_, **__: groups)
    share = frozenset({"share-orders"})
    assert cluster.groups() == Listing({"billing": "Unknown"}, is_complete=True, others=share)

    def denied(*_: object, **__: object) -> NoReturn:
        raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))

    monkeypatch.setattr(AdminClient, "list_groups", denied)
    now[0] += 60
    assert cluster.groups().others == share  # the last that is known
    monkeypatch.setattr(AdminClient, "list_groups", lambda *_, **__: groups[:1])
    assert cluster.groups().others == share  # the call also describes every group, so it is made once a minute
    now[0] += 60
    assert cluster.groups().others == frozenset()


def test_an_incomplete_list_of_consumer_groups_makes_none_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = KafkaCluster({"bootstrap.servers": "127.0.0.1:1"})
    listed: Future[Any] = Future()
    errors = [KafkaError(KafkaError.BROKER_NOT_AVAILABLE)]
    listed.set_result(SimpleNamespace(valid=[SimpleNamespace(group_id="billing")], errors=errors))
    monkeypatch.setattr(AdminClient, "list_consumer_groups", lambda *_, **__: listed)
    monkeypatch.setattr(AdminClient, "list_groups", lambda *_, **__: [SimpleNamespace(id="audit")])
    assert cluster.groups() == Listing({"billing": "Unknown"}, is_complete=False)


def test_a_partition_that_does_not_exist_has_its_own_error(bootstrap: str) -> None:
    cluster = KafkaCluster({"bootstrap.servers": bootstrap})
    found = cluster.log_ends([TopicPartition("orders", 0), TopicPartition("orders", 77)])
    assert found[TopicPartition("orders", 0)] == 10
    assert found[TopicPartition("orders", 77)] == Failure("unknown_topic_or_part", "there is no such partition")


def test_groups_with_an_unavailable_coordinator_do_not_block_the_poll_forever() -> None:
    moments = iter([0.0, *[1.0] * 2, *[100.0] * 1000])
    cluster = KafkaCluster({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=1, seconds=lambda: next(moments))
    found = cluster.committed([f"g{number:03}" for number in range(300)])
    late = [group for group, each in found.items() if isinstance(each, Failure) and "took too long" in each.text]
    assert len(found) == 300
    assert late == [f"g{number:03}" for number in range(2, 300)]


def test_the_first_unread_records_are_read_with_their_times_and_an_end_without_a_record_is_told(bootstrap: str) -> None:
    cluster = KafkaCluster({"bootstrap.servers": bootstrap})
    first, full, missing = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("orders", 77)
    found = cluster.first_unread({first: 4, full: 11, missing: 0})
    record = found[first]
    assert isinstance(record, FirstUnread)
    assert record.offset == 4
    assert (record.written_ms or 0) > 1_700_000_000_000
    assert found[full] == FirstUnread(11)
    assert isinstance(found[missing], Failure)
