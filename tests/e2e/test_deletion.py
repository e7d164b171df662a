"""Deleted groups and topics leave Karrot as soon as the deletion is certain."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from e2e.services import CLUSTER, watching
from e2e.stack.kafka import Kafka
from e2e.stack.stack import Stack
from e2e.standin import standing_in
from e2e.waiting import wait_for
from support.burrow.recorded_bodies import recorded_body
from support.service.karrot_service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

KEPT, DELETED = "gone-kept", "gone-deleted"
READ = {
    "gone-group": {KEPT: 10},
    "gone-half": {KEPT: 20, DELETED: 30},
    "gone-whole": {DELETED: 40},
    "gone-not": {KEPT: 60},
}
MESSAGES = 100
LAGS = {group: sum(MESSAGES - offset for offset in topics.values()) for group, topics in READ.items()}
SURE_S = 120


class Scene(NamedTuple):
    """Services that all knew the groups above when one of these groups and one topic were deleted."""

    resync: Service
    watch: Service


def lag(service: Service, group: str) -> float | None:
    return service.metric("karrot_consumer_lag", consumer=group)


def topic_lag(service: Service, group: str, topic: str) -> float | None:
    return service.metric("karrot_consumer_topic_lag", consumer=group, topic=topic)


def write_and_commit(kafka: Kafka) -> None:
    admin = kafka.admin()
    for topic in (KEPT, DELETED):
        kafka.create_topic(topic, 1)
        producer = Producer(kafka.client)
        for _ in range(MESSAGES):
            producer.produce(topic, b"message", partition=0)
        assert producer.flush(30) == 0
    for group, topics in READ.items():
        offsets = [TopicPartition(topic, 0, offset) for topic, offset in topics.items()]
        asked = [ConsumerGroupTopicPartitions(group, offsets)]
        admin.alter_consumer_group_offsets(asked)[group].result(30)


@pytest.fixture(scope="module")
def scene(one_broker: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    kafka, directory = one_broker.kafka, tmp_path_factory.mktemp("deletion")
    write_and_commit(kafka)
    more = {"topic_metrics": "true"}
    with (
        standing_in(kafka, CLUSTER) as burrow,
        Service(directory / "resync", burrow_url=burrow, resync_interval="10s", topic_metrics="true") as resync,
        watching(kafka, directory / "watch", only="gone-", **more) as watch,
    ):
        found = Scene(resync, watch)
        for service in found:
            wait_for(lambda service=service: {group: lag(service, group) for group in READ} == LAGS)  # type: ignore[misc]
        body = (
            recorded_body("karrot_v1.9.5_warn.json").replace(b"prod-eu", b"e2e").replace(b"orders-svc", b"gone-group")
        )
        assert resync.post(body).status == 202
        assert resync.metric("karrot_consumer_incident_start_timestamp_seconds", consumer="gone-group")
        admin = kafka.admin()
        admin.delete_consumer_groups(["gone-group"])["gone-group"].result(30)
        admin.delete_topics([DELETED])[DELETED].result(30)
        yield found


def test_a_deleted_topic_leaves_its_groups_with_the_next_poll(scene: Scene) -> None:
    for service in scene:
        wait_for(lambda service=service: topic_lag(service, "gone-half", DELETED) is None)  # type: ignore[misc]
        assert (lag(service, "gone-half"), topic_lag(service, "gone-half", KEPT)) == (80, 80)


def test_a_group_without_topics_has_no_lag_if_burrow_reports_that(scene: Scene) -> None:
    wait_for(lambda: lag(scene.resync, "gone-whole") == 0)
    assert topic_lag(scene.resync, "gone-whole", DELETED) is None


@pytest.mark.parametrize("which", ["resync", "watch"])
def test_a_deleted_group_ends_when_its_deletion_is_certain_and_long_before_the_stale_time(
    scene: Scene, which: str
) -> None:
    service: Service = getattr(scene, which)
    wait_for(lambda: lag(service, "gone-group") is None, SURE_S)
    assert lag(service, "gone-not") == 40
    assert service.metric("karrot_consumers_expired_total") == 0
    assert service.metric("karrot_consumer_incident_start_timestamp_seconds", consumer="gone-group") is None
    assert service.get(f"/api/v1/group?cluster={CLUSTER}&consumer=gone-group").status == 404
    if which == "watch":  # then the alert KarrotConsumerVanished does not fire
        assert service.metric("karrot_consumer_group_state", consumer="gone-group", state="Dead") == 1
