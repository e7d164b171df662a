"""The real Burrow, two of them, configured as `karrot burrow-config` says. Skipped where there is none."""

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from e2e.figures import Figures
from e2e.services import CLUSTER
from e2e.skew import GROUP, experiment, karrots_lags, remove
from e2e.stack.burrow import Burrow
from e2e.stack.kafka import Kafka
from e2e.stack.stack import Stack
from e2e.waiting import wait_for
from karrot.burrow.client import Burrow as Client
from support.processes import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

FIRST_WORD_S = 150  # Burrow sends nothing in its first 60 seconds, and groups begin at a random moment
INTERVAL_S = 10
OK, ERR = 1, 3
AGREEING = {
    "burrow_kafka_consumer_lag_total": "karrot_consumer_lag",
    "burrow_kafka_consumer_status": "karrot_consumer_status_code",
}
BURROW_ITSELF = f"burrow-{CLUSTER}"
TOPIC, WELL, BEHIND, MESSAGES = "agreed", "agreed-well", "agreed-behind", 20
OTHERS_TURN_S = 180  # ZooKeeper's session ends, and all groups are due


class Scene(NamedTuple):
    """Two Burrows that share a lock, and the Karrot they post to, after the skew experiment."""

    service: Service
    burrows: tuple[Burrow, Burrow]
    stack: Stack
    lags: dict[int, int]


def notifier(url: str, directory: Path) -> str:
    """What the command prints, with shorter times and a template that lies elsewhere."""
    command = [sys.executable, "-m", "karrot", "burrow-config", "--url", url]
    template = directory / "karrot.tmpl"
    template.write_bytes(subprocess.run([*command, "--template"], capture_output=True, check=True).stdout)
    section = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    section = section.replace("/etc/burrow/karrot.tmpl", str(template))
    return section.replace("interval = 30", f"interval = {INTERVAL_S}").replace("interval = 20", "interval = 8")


def commit(kafka: Kafka, burrow: Burrow) -> None:
    """One group has read everything, another has not; again until Burrow has measured the topic and takes it."""
    kafka.create_topic(TOPIC, 1)
    producer, admin = Producer(kafka.client), kafka.admin()
    for _ in range(MESSAGES):
        producer.produce(TOPIC, b"message", partition=0)
    assert producer.flush(30) == 0

    def are_known() -> bool:
        for group, offset in ((WELL, MESSAGES), (BEHIND, 5)):
            asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, 0, offset)])]
            admin.alter_consumer_group_offsets(asked)[group].result(30)
        with Client(burrow.url) as client:
            return {WELL, BEHIND} <= set(client.consumers(CLUSTER))

    wait_for(are_known)


@pytest.fixture(scope="module")
def scene(burrow_bin: str, stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("burrow")
    with Service(directory / "data") as service:
        section = notifier(f"http://127.0.0.1:{service.port}", directory)
        first, second = (
            stack.burrow(burrow_bin, name=f"burrow-{number}", cluster=CLUSTER, notifiers=section) for number in (1, 2)
        )
        commit(stack.kafka, first)
        said = experiment(stack.kafka, "--keep", "--burrow", first.url)
        assert "$ karrot lag" in said
        lags = {each.partition: each.lag or 0 for each in stack.kafka.positions(GROUP)}
        yield Scene(service, (first, second), stack, lags)
        for each in (first, second):
            each.server.stop()
        remove(stack.kafka)


def test_webhook_and_rest_have_the_lags_that_kafka_has(scene: Scene) -> None:
    wait_for(lambda: scene.service.metric("karrot_consumer_lag", consumer=GROUP) is not None, FIRST_WORD_S)
    assert scene.service.metric("karrot_consumer_lag", consumer=GROUP) == sum(scene.lags.values())
    assert karrots_lags(scene.burrows[0].url) == scene.lags


def test_burrows_own_metrics_and_karrots_agree_on_every_group(scene: Scene, figures: Figures) -> None:
    prometheus = scene.stack.prometheus

    def told(metric: str, label: str) -> dict[str, float]:
        found = prometheus.query(f'{metric}{{cluster="{CLUSTER}"}}')
        return {each["metric"][label]: float(each["value"][1]) for each in found}

    def agree(theirs: str, ours: str) -> bool:
        """Its own group left out, which Karrot keeps apart."""
        burrows = told(theirs, "consumer_group")
        burrows.pop(BURROW_ITSELF, None)
        return burrows == told(ours, "consumer")

    with (
        prometheus.scraping("burrow", scene.burrows[0].port),
        prometheus.scraping("beside-burrow", scene.service.port),
    ):
        wait_for(lambda: {GROUP, WELL, BEHIND} <= told("karrot_consumer_lag", "consumer").keys(), FIRST_WORD_S)
        started = time.monotonic()
        for pair in AGREEING.items():
            wait_for(partial(agree, *pair))
        figures.add(
            "from a webhook on each group to Burrow's metrics and Karrot's being equal", time.monotonic() - started
        )
        lags, statuses = (told(ours, "consumer") for ours in AGREEING.values())
        wait_for(lambda: prometheus.number(f'karrot_burrow_self_lag{{cluster="{CLUSTER}"}}') is not None, FIRST_WORD_S)
    assert {group: (lags[group], statuses[group]) for group in (GROUP, WELL, BEHIND)} == {
        GROUP: (sum(scene.lags.values()), ERR),
        WELL: (0, OK),
        BEHIND: (MESSAGES - 5, ERR),
    }


def test_another_burrow_goes_on_when_the_one_that_posts_is_killed(scene: Scene) -> None:
    service = scene.service

    def heard() -> float:
        return service.metric("karrot_last_event_timestamp_seconds", cluster=CLUSTER) or 0

    wait_for(lambda: heard() > 0, FIRST_WORD_S)
    scene.burrows[0].server.kill()  # it was ready before the other one started, so the lock is its own
    before = heard()
    wait_for(lambda: heard() > before + INTERVAL_S, OTHERS_TURN_S)
    assert service.metric("karrot_consumer_lag", consumer=GROUP) == sum(scene.lags.values())
    # Its incident has a new id.
    wait_for(lambda: service.metric("karrot_consumer_incidents_total", consumer=GROUP) == 2, OTHERS_TURN_S)
